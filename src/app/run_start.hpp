#pragma once
// The way from a user's options to an assembled training, which `trainer train` and `trainer check` go alike.

#include "tutti/nn/network_spec.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "assemble.hpp"
#include "preflight/finding.hpp"
#include "trained_on.hpp"

#include <optional>
#include <set>
#include <string>

namespace tutti {

// What a training starts from, and with which network.
struct RunStart {
  std::optional<LoadedCheckpoint> resumed;  // its own newest good checkpoint
  std::optional<LoadedCheckpoint> weights;  // another run's
  std::optional<NetworkSpec> model;         // none: what it would be of cannot be read
  DataDigests digests{};                    // of its data, once they are there
};

// Of a run that is resumed, `config` becomes the configuration of its checkpoint with what is `given` anew. Collective.
RunStart find_start(World& world, RunConfig& config, const std::set<std::string>& given, Damaged damaged,
                    Obstacles& obstacles, const Log& log);

// The data are those of the checkpoint that is resumed. `samples_files` is TrainingSources'. Collective.
Assembly assemble_run(World& world, const RunConfig& config, RunStart& start, bool samples_files, Obstacles& obstacles,
                      const Log& log);

// What of the assembled run will fail or be slow, memory left aside. Collective.
void judge_run(World& world, const Assembly& assembly, const RunStart& start, Obstacles& obstacles);

}  // namespace tutti
