#include "step_account.hpp"

#include "tutti/base/timing.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Of one step, from what each rank saw.
StepAccount account_of_step(const std::vector<StepAccount>& ranks) {
  StepAccount account = mean_of(ranks);
  // Who is early waits in the exchange for who is late.
  const double slowest = std::ranges::max(ranks, {}, &StepAccount::compute).compute;
  account.imbalance = std::min(slowest - account.compute, account.exchange);
  account.exchange -= account.imbalance;
  return account;
}

template <class Item>
double median_by(const Item& item, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(item(i));
  return quartiles_of(std::move(values)).median;
}

}  // namespace

StepAccount account_for(World& world, const std::vector<StepTimes>& steps) {
  std::vector<double> mine;
  for (const StepTimes& step : steps) {
    const StepAccount seen{
        .input = step.input, .compute = step.compute_seconds(), .exchange = step.exchange(), .update = step.update};
    for (const StepItem& item : kStepItems) mine.push_back(seen.*item.seconds);
  }
  const auto figures = all_gather_figures(world, mine);
  std::vector<StepAccount> accounts;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    std::vector<StepAccount> ranks(figures.size());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      for (std::size_t i = 0; i < kStepItems.size(); ++i) {
        ranks[rank].*kStepItems[i].seconds = figures[rank].at(step * kStepItems.size() + i);
      }
    }
    accounts.push_back(account_of_step(ranks));
  }
  StepAccount median;
  for (const StepItem& item : kStepItems) {
    median.*item.seconds = median_by([&](std::size_t i) { return accounts[i].*item.seconds; }, accounts.size());
  }
  return median;
}

StepTimes median_of(const std::vector<StepTimes>& steps) {
  StepTimes median = steps.front();
  for (const auto phase : {&StepTimes::input, &StepTimes::driving, &StepTimes::waiting, &StepTimes::update}) {
    median.*phase = median_by([&](std::size_t i) { return steps[i].*phase; }, steps.size());
  }
  for (std::size_t k = 0; k < median.compute.size(); ++k) {
    median.compute[k].seconds = median_by([&](std::size_t i) { return steps[i].compute.at(k).seconds; }, steps.size());
  }
  return median;
}

StepAccount mean_of(const std::vector<StepAccount>& accounts) {
  StepAccount mean;
  for (const StepItem& item : kStepItems) {
    for (const StepAccount& account : accounts) {
      mean.*item.seconds += account.*item.seconds / static_cast<double>(accounts.size());
    }
  }
  return mean;
}

}  // namespace tutti
