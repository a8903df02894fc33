#pragma once
// What follows of a run from its options and its data.

#include "tutti/checkpoint/train_state.hpp"
#include "tutti/data/split_batch_sampler.hpp"
#include "tutti/train/trainer.hpp"

#include <cstdint>

namespace tutti {

// Throws a usage error where `samples` fill no batch.
std::int64_t count_planned_steps(const TrainerOptions& options, const SplitBatchSampler& schedule,
                                 std::int64_t samples);

// Throws a checkpoint error for progress that a run with this schedule, seed and number of parts cannot have made.
void refuse_misfit(const TrainProgress& theirs, const TrainProgress& ours, const SplitBatchSampler& schedule);

}  // namespace tutti
