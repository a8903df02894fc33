#pragma once
// What a run is, in three forms: the lines on stderr before the first step, the first record of metrics.jsonl, and the
// line of versions in checkpoints.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"
#include "tutti/train/trainer.hpp"

#include "assemble.hpp"
#include "preflight/agreement.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Rank 0's lines on stderr before the first step. Collective.
void log_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log);
// The learning rates of the last step and of the next one.
struct RateAtResume {
  double before = 0;
  double now = 0;
};
// A warning if the schedule's end has moved, which makes the learning rate jump; else empty. It suggests the old end
// only if that leaves no epochs at a learning rate of 0.
std::string moved_schedule_text(const RunConfig& config, const LoadedCheckpoint& resumed, const RateAtResume& rate);
// A note if epochs follow the end of a cosine schedule, at the least learning rate; else empty.
std::string late_schedule_text(const RunConfig& config);
// One JSON object; `steps` is the number of steps done before.
std::string run_record(const Assembly& assembly, const World& world, const std::vector<std::string>& words,
                       std::int64_t steps);
std::string versions_text(const Backend& backend, const World& world);
// The processor kinds, which decide the bits ("AVX2"), of this backend and of the checkpoint that is resumed.
ProcessorKinds processor_kinds(const Backend& backend, const std::optional<LoadedCheckpoint>& resumed);

}  // namespace tutti
