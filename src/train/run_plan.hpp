#pragma once
// What follows of a run from its options and its data.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/data/split_batch_sampler.hpp"
#include "tutti/train/trainer.hpp"

#include <cstdint>

namespace tutti {

struct RunPlan {
  std::int64_t steps = 0;           // after which this launch ends
  std::int64_t epochs = 0;          // of which the last may end early
  std::int64_t schedule_steps = 0;  // over which the learning rate's schedule stretches, wherever this launch ends
};
// Throws a usage error where `samples` fill no batch.
RunPlan plan_run(const TrainerOptions& options, const SplitBatchSampler& schedule, std::int64_t samples);

// Throws a checkpoint error for progress that a run with this schedule, seed and number of parts cannot have made.
void refuse_misfit(const TrainProgress& theirs, const TrainProgress& ours, const SplitBatchSampler& schedule);

}  // namespace tutti
