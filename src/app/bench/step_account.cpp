#include "step_account.hpp"

#include "bench.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace tutti {
namespace {

// What the others need to know of a rank's step.
struct Phases {
  double input = 0;
  double compute = 0;
  double exchange = 0;
  double update = 0;
};

StepAccount account_for(const std::vector<Phases>& ranks) {
  StepAccount account;
  double slowest = 0;
  for (const Phases& mine : ranks) {
    account.input += mine.input;
    account.compute += mine.compute;
    account.exchange += mine.exchange;
    account.update += mine.update;
    slowest = std::max(slowest, mine.compute);
  }
  for (double* sum : {&account.input, &account.compute, &account.exchange, &account.update}) {
    *sum /= static_cast<double>(ranks.size());
  }
  // Who is early waits in the exchange for who is late.
  account.imbalance = std::min(slowest - account.compute, account.exchange);
  account.exchange -= account.imbalance;
  return account;
}

constexpr std::array kItems{&StepAccount::input, &StepAccount::compute, &StepAccount::imbalance, &StepAccount::exchange,
                            &StepAccount::update};

template <class Item>
double median_by(const Item& item, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(item(i));
  return spread_of(std::move(values)).median;
}

}  // namespace

StepAccount account_for(World& world, const std::vector<StepTimes>& steps) {
  std::vector<Phases> mine;
  for (const StepTimes& step : steps) {
    mine.push_back({step.input, step.compute_seconds(), step.exchange(), step.update});
  }
  std::vector<std::vector<Phases>> by_step(steps.size());
  for (const auto& bytes : world.all_gather(std::as_bytes(std::span(mine)))) {
    std::vector<Phases> theirs(steps.size());
    std::memcpy(theirs.data(), bytes.data(), bytes.size());
    for (std::size_t i = 0; i < theirs.size(); ++i) by_step[i].push_back(theirs[i]);
  }
  std::vector<StepAccount> accounts;
  for (const auto& ranks : by_step) accounts.push_back(account_for(ranks));
  StepAccount median;
  for (const auto item : kItems) {
    median.*item = median_by([&](std::size_t i) { return accounts[i].*item; }, accounts.size());
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
  for (const auto item : kItems) {
    for (const StepAccount& account : accounts) mean.*item += account.*item / static_cast<double>(accounts.size());
  }
  return mean;
}

}  // namespace tutti
