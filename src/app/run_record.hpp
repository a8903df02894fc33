#pragma once
// What a run is, told in three ways: the banner for people, the first record of metrics.jsonl, and a line of versions
// for checkpoints.

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/trainer.hpp"

#include "assemble.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Rank 0's lines on stderr before the first step. Collective.
void tell_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log);
// What the step to come trains at, beside the last one.
struct RateAtResume {
  double before = 0;
  double now = 0;
};
// Empty unless the schedule's end has moved, which makes the learning rate jump. Keeping the old end is a remedy only
// where it leaves no epochs at a learning rate of 0.
std::string moved_schedule_text(const RunConfig& config, const LoadedCheckpoint& resumed, const RateAtResume& rate);
// Empty unless epochs follow the end of a cosine schedule at the least learning rate.
std::string late_schedule_text(const RunConfig& config);
// One JSON object; `steps` were done before.
std::string run_record(const Assembly& assembly, const World& world, const std::vector<std::string>& words,
                       std::int64_t steps);
std::string versions_text(const Backend& backend, const World& world);
std::string versions_text(const Assembly& assembly, const World& world);
// The kind of processor that decides on the bits, "AVX2": of a backend, and of such a line; empty where it has none.
std::string processor_of(const Backend& backend);
std::string processor_in(const std::string& versions);
ProcessorKinds processor_kinds(const Backend& backend, const std::optional<LoadedCheckpoint>& resumed);

}  // namespace tutti
