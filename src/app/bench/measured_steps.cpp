#include "measured_steps.hpp"

#include "tutti/base/timing.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tutti {
namespace {

// Of one step, from the times of each rank.
StepAccount account_of_step(const std::vector<StepAccount>& ranks) {
  StepAccount account = mean_of(ranks);
  // Early ranks wait in the exchange for the late ones.
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

// Sleeps for given times. If a sleep takes too long, the next one is shorter.
class PacedTime {
 public:
  // Sleeps until `seconds` have passed since the last call, minus the excess of earlier sleeps. Returns the time taken.
  double sleep(double seconds) {
    const auto until = last_ + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(std::max(0.0, seconds - overslept_)));
    std::this_thread::sleep_until(until);
    const double took = lap();
    overslept_ += took - seconds;
    return took;
  }
  // The seconds since the last call.
  double lap() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  double overslept_ = 0;
};

StepRequest next_step(const Trainer& trainer) {
  return {.step = trainer.steps_done(), .updates = trainer.steps_done(), .learning_rate = trainer.learning_rate()};
}

// Repeats the exchange until the exact exchange has found a grid for these gradients.
StepOutcome exchange_all(Replica& replica, const Tensor& gradients, std::int64_t step) {
  StepOutcome outcome = StepOutcome::repeat;
  while (outcome == StepOutcome::repeat) {
    replica.set_gradients(gradients);
    replica.start_ready_buckets(replica.gradients().elements());
    outcome = replica.finish_exchange(step);
  }
  return outcome;
}

}  // namespace

StepTimes timed_step(Trainer& trainer) {
  StepTimes times;
  StepRequest request = next_step(trainer);
  request.times = &times;
  trainer.replica().step(request);
  return times;
}

StepTimes paced_step(Trainer& trainer, const StepTimes& pace) {
  Replica& replica = trainer.replica();
  StepTimes times;
  PacedTime time;
  times.input = time.sleep(pace.input);
  replica.set_gradients({});
  for (const StepTimes::Interval& interval : pace.compute) {
    times.compute.push_back({.seconds = time.sleep(interval.seconds), .final_elements = interval.final_elements});
    replica.start_ready_buckets(interval.final_elements);
    times.overlapped_exchange += time.lap();
  }
  if (replica.finish_exchange(trainer.steps_done()) == StepOutcome::repeat) {
    exchange_all(replica, {}, trainer.steps_done());
  }
  replica.synchronize();
  times.waiting = time.lap();
  times.update = time.sleep(pace.update * replica.owned_fraction());
  replica.gather_weights();
  replica.synchronize();
  times.waiting += time.lap();
  return times;
}

void exchange_step(Trainer& trainer, const Tensor& gradients) {
  Replica& replica = trainer.replica();
  const StepRequest request = next_step(trainer);
  if (exchange_all(replica, gradients, request.step) == StepOutcome::valid) replica.update(request);
}

StepAccount account_for(World& world, const std::vector<StepTimes>& steps) {
  std::vector<double> mine;
  for (const StepTimes& step : steps) {
    const StepAccount seen{
        .input = step.input, .compute = step.compute_seconds(), .exchange = step.exchange(), .update = step.update};
    for (const StepItem& item : kStepItems) mine.push_back(seen.*item.seconds);
  }
  const auto figures = all_gather_doubles(world, mine);
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
  for (const auto phase :
       {&StepTimes::input, &StepTimes::overlapped_exchange, &StepTimes::waiting, &StepTimes::update}) {
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
