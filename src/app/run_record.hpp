#pragma once
// What a run is, told in three ways: the banner for people, the first record of metrics.jsonl, and a line of versions
// for checkpoints.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/trainer.hpp"

#include "assemble.hpp"

#include <string>
#include <vector>

namespace tutti {

// Rank 0's lines on stderr before the first step. Collective.
void tell_start(const Assembly& assembly, World& world, const Trainer& trainer, const Log& log);
// One JSON object.
std::string run_record(const Assembly& assembly, const World& world, const std::vector<std::string>& words);
std::string versions_text(const Assembly& assembly, const World& world);

}  // namespace tutti
