#include "scaling_point.hpp"

#include "readied.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kMostTimedApart = 10;

// Where steps are enqueued, those that are timed in full are told apart from those whose phases are waited for.
struct Timing {
  std::vector<double> seconds;
  std::vector<StepTimes> phases;
};

Timing time_round(World& working, Readied& run, const TimedSteps& steps, const std::optional<StepTimes>& pace) {
  Trainer& trainer = *run.trainer;
  Timing timing;
  const auto timed = [&] { timing.phases.push_back(pace ? trainer.paced_step(*pace) : trainer.timed_step()); };
  if (pace || run.assembly.backend->memory_space() == MemorySpace::host) {
    timing.seconds = time_steps(working, trainer, steps, timed);
    timing.phases.erase(timing.phases.begin(), timing.phases.end() - steps.timed);
    return timing;
  }
  timing.seconds = time_steps(working, trainer, steps_for(*run.assembly.backend, steps), [&] { trainer.step(); });
  for (std::int64_t i = 0; i < std::min(steps.timed, kMostTimedApart); ++i) timed();
  return timing;
}

}  // namespace

std::string_view name_of(ScalingMode mode) { return mode == ScalingMode::strong ? "strong" : "weak"; }

Quartiles ScalingPoint::quartiles() const {
  Quartiles spread = quartiles_of(steps);
  spread.median = quartiles_of(round_medians).median;
  return spread;
}

RunConfig config_for(const Invocation& invocation, const ScalingPoint& point, int threads) {
  const TimedSteps& steps = invocation.steps;
  RunConfig config = config_for_steps(invocation, steps.warmup + steps.timed + kMostTimedApart);
  config.batch_size = point.batch;
  config.parts = point.ranks;
  if (config.threads == 0) config.threads = threads;
  config.exchange = point.exchange;
  // Every step is of a whole batch, though it were larger than the data.
  if (!invocation.given.contains("last-batch")) config.last_batch = "rollover";
  return config;
}

void measure_round(World& working, const RunConfig& config, const TimedSteps& steps,
                   const std::optional<StepTimes>& pace, ScalingPoint& point) {
  Readied run(working, config);
  point.oversubscribed =
      !pace && !working.agree(run.assembly.config.threads * working.local_size() <= run.assembly.cores.usable);
  Timing timing = time_round(working, run, steps, pace);
  point.rounds.push_back(account_for(working, timing.phases));
  point.round_medians.push_back(quartiles_of(timing.seconds).median);
  point.steps.insert(point.steps.end(), timing.seconds.begin(), timing.seconds.end());
}

}  // namespace tutti
