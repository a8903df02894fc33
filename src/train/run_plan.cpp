#include "tutti/base/error.hpp"
#include "tutti/train/trainer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tutti {

Trainer::Plan Trainer::plan_run(const TrainerOptions& options, const SplitBatchSampler& sampler, std::int64_t samples) {
  Plan plan{.epochs = options.epochs};
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    plan.steps += sampler.steps(epoch);
    if (options.steps <= 0 || plan.steps < options.steps) continue;
    plan.steps = options.steps;
    plan.epochs = epoch + 1;
    break;
  }
  const std::int64_t schedule_epochs = options.schedule_epochs > 0 ? options.schedule_epochs : options.epochs;
  plan.schedule_steps =
      options.schedule_epochs == kScheduleOfInvocation ? plan.steps : sampler.steps_before(schedule_epochs);
  if (plan.steps == 0 && options.epochs > 0) {
    throw Error(ErrorSource::usage,
                fmt::format("{} samples do not fill a batch of {} with --last-batch {}: lower --batch-size or use keep",
                            samples, options.batch_size, name_of(options.last_batch)));
  }
  return plan;
}

void Trainer::require_matching_progress(const TrainProgress& theirs) const {
  const auto require = [](std::string_view item, std::int64_t found, IndexRange wanted) {
    if (found >= wanted.begin && found < wanted.end) return;
    throw Error(
        ErrorSource::checkpoint,
        fmt::format(
            "{} is {} in the checkpoint, but {} with these options and this data: resume with the original ones", item,
            found,
            wanted.size() == 1 ? fmt::format("{}", wanted.begin)
                               : fmt::format("{} to {}", wanted.begin, wanted.end - 1)));
  };
  const auto expect = [&](std::string_view item, std::int64_t found, std::int64_t wanted) {
    require(item, found, {wanted, wanted + 1});
  };
  expect("seed", theirs.seed, progress_.seed);
  expect("parts", theirs.parts, progress_.parts);
  require("epoch", theirs.epoch, {0, SplitBatchSampler::kMaxEpochs});
  require("step_in_epoch", theirs.step_in_epoch, {0, std::max<std::int64_t>(sampler().steps(theirs.epoch), 1)});
  expect("step", theirs.step, sampler().steps_before(theirs.epoch) + theirs.step_in_epoch);
  expect("samples_in_epoch", theirs.samples_in_epoch, sampler().samples_before(theirs.epoch, theirs.step_in_epoch));
  expect("carried_over", theirs.carried_over, sampler().carried_over(theirs.epoch));
}

}  // namespace tutti
