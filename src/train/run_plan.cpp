#include "tutti/base/error.hpp"
#include "tutti/data/split_batch_sampler.hpp"
#include "tutti/train/trainer.hpp"

#include <fmt/format.h>

namespace tutti {

RunPlan plan_run(const TrainerOptions& options, std::int64_t samples) {
  const SplitBatchSampler sampler(samples, options.batch_size, 1, 0, options.last_batch);
  RunPlan plan{.epochs = options.epochs, .epoch_steps = sampler.steps(0)};
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

}  // namespace tutti
