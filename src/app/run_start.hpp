#pragma once
// From the user's options to an assembled training, for `trainer train` and `trainer check`: finds the checkpoint to
// start from, and checks what was assembled.

#include "tutti/data/trained_on.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/nn/network_spec.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "assemble.hpp"
#include "preflight/findings.hpp"
#include "preflight/memory.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

// The checkpoint that a training starts from, and its network.
struct RunStart {
  std::optional<LoadedCheckpoint> resumed;  // the newest good checkpoint of this run
  std::optional<LoadedCheckpoint> weights;  // initial weights from another run
  std::optional<NetworkSpec> model;         // empty if its source cannot be read
  DataDigests digests{};                    // of the data, once they are loaded
  RunPlan plan{};                           // likewise; zeros if they do not fill a batch
};

// Throws if --resume names a folder without a run, which may be mistyped, and no options of a new run are given.
// Collective.
void refuse_absent_run(World& world, const RunConfig& config);

// On a resume, `config` becomes that of the checkpoint, merged with the given options. If the run ended before its
// first checkpoint, it becomes that of its config.toml, unless options of a training are given. Collective.
RunStart find_start(World& world, RunConfig& config, DamagedPolicy damaged, PreflightReporter& preflight,
                    const Log& log);

// Refuses data other than those of a resumed checkpoint. With `decode_sample`, decodes a sample of the images, for
// which a start takes no time. Collective.
Assembly assemble_run(World& world, const RunConfig& config, RunStart& start, bool decode_sample,
                      PreflightReporter& preflight, const Log& log);

// The memory and the checkpoints of a run on this rank.
struct RunNeeds {
  JobMemory memory{};
  std::optional<FileShard> shard{};  // of every checkpoint, which this rank saves; empty: it saves none
  bool splits_checkpoints = false;   // each consists of more than one file
};
// Checks the memory of the hosts and the limits of the processes, including what saving needs if the run has --out. If
// `device_free` is known, also checks the memory of the GPU. Collective.
RunNeeds check_needs(World& world, const Assembly& assembly, PreflightReporter& preflight,
                     std::optional<std::int64_t> device_free = {});

// Checks whether the assembled run will fail or be slow, except for its memory. Collective.
void check_run(World& world, const Assembly& assembly, const RunStart& start, PreflightReporter& preflight);

}  // namespace tutti
