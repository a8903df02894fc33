#include "measured_steps.hpp"

#include "tutti/base/timing.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <thread>
#include <utility>

namespace tutti {
namespace {

// The median of one figure of each step.
template <class Step, class Figure>
double median_over(const std::vector<Step>& steps, Figure figure) {
  std::vector<double> values;
  for (const Step& step : steps) values.push_back(std::invoke(figure, step));
  return quartiles_of(std::move(values)).median;
}

// Sleeps for given times. If a sleep takes too long, the next one is shorter.
class PacedTime {
 public:
  // Sleeps until `seconds` have passed since the last call, minus the excess of earlier sleeps. Returns the time taken.
  double sleep(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds - overslept_ - watch_.seconds()));
    const double took = lap();
    overslept_ += took - seconds;
    return took;
  }
  // The seconds since the last call.
  double lap() {
    const double seconds = watch_.seconds();
    watch_.restart();
    return seconds;
  }

 private:
  Stopwatch watch_;
  double overslept_ = 0;
};

// Repeats the exchange until the exact exchange has found a grid for these gradients.
StepOutcome exchange_all(ReplicaState& state, const Tensor& gradients, std::int64_t step) {
  StepOutcome outcome = StepOutcome::repeat;
  while (outcome == StepOutcome::repeat) {
    state.set_gradients(gradients);
    state.start_ready_buckets(state.gradients().elements());
    outcome = state.finish_exchange(step);
  }
  return outcome;
}

// The part of the block that this rank updates.
double owned_fraction(const ReplicaState& state) {
  std::int64_t elements = 0;
  for (const IndexRange& own : state.ownership().owned()) elements += own.size();
  return static_cast<double>(elements) / static_cast<double>(state.gradients().elements());
}

}  // namespace

StepTimes timed_step(Trainer& trainer) {
  StepTimes times;
  StepRequest request = trainer.next_step();
  request.times = &times;
  trainer.replica().step(request);
  return times;
}

StepTimes paced_step(Trainer& trainer, const StepTimes& pace) {
  Replica& replica = trainer.replica();
  ReplicaState& state = replica.state();
  StepTimes times;
  PacedTime time;
  times.input = time.sleep(pace.input);
  state.set_gradients({});
  for (const StepTimes::Interval& interval : pace.compute) {
    times.compute.push_back({.seconds = time.sleep(interval.seconds), .ready_elements = interval.ready_elements});
    state.start_ready_buckets(interval.ready_elements);
    times.overlapped_exchange += time.lap();
  }
  if (state.finish_exchange(trainer.steps_done()) == StepOutcome::repeat) {
    exchange_all(state, {}, trainer.steps_done());
  }
  replica.synchronize();
  times.waiting = time.lap();
  times.update = time.sleep(pace.update * owned_fraction(state));
  state.gather_weights();
  replica.synchronize();
  times.waiting += time.lap();
  return times;
}

void exchange_step(Trainer& trainer, const Tensor& gradients) {
  ReplicaState& state = trainer.replica().state();
  const StepRequest request = trainer.next_step();
  if (exchange_all(state, gradients, request.step) == StepOutcome::valid) state.update(request);
}

StepAccount account_for(World& world, const std::vector<StepTimes>& steps) {
  constexpr std::size_t kFigures = 4;
  std::vector<double> mine;
  for (const StepTimes& step : steps) {
    mine.insert(mine.end(), {step.input, step.compute_seconds(), step.exchange(), step.update});
  }
  const auto ranks = all_gather_doubles(world, mine);
  std::vector<StepAccount> accounts(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    StepAccount& account = accounts[i];
    double slowest = 0;
    for (const std::vector<double>& figures : ranks) {
      const std::span step = std::span(figures).subspan(i * kFigures, kFigures);
      const auto count = static_cast<double>(ranks.size());
      account.input += step[0] / count;
      account.compute += step[1] / count;
      account.exchange += step[2] / count;
      account.update += step[3] / count;
      slowest = std::max(slowest, step[1]);
    }
    // Early ranks wait in the exchange for the late ones.
    account.imbalance = std::min(slowest - account.compute, account.exchange);
    account.exchange -= account.imbalance;
  }
  StepAccount median;
  for (const StepItem& item : kStepItems) median.*item.seconds = median_over(accounts, item.seconds);
  return median;
}

StepTimes median_of(const std::vector<StepTimes>& steps) {
  StepTimes median = steps.front();
  for (const auto phase :
       {&StepTimes::input, &StepTimes::overlapped_exchange, &StepTimes::waiting, &StepTimes::update}) {
    median.*phase = median_over(steps, phase);
  }
  for (std::size_t k = 0; k < median.compute.size(); ++k) {
    median.compute[k].seconds = median_over(steps, [k](const StepTimes& step) { return step.compute.at(k).seconds; });
  }
  return median;
}

}  // namespace tutti
