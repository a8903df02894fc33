#pragma once
// The start of a training, for `trainer train` and `trainer check`: the checkpoint that it starts from, and the checks
// of what was prepared.

#include "tutti/data/trained_on.hpp"
#include "tutti/nn/network_spec.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "assemble.hpp"
#include "findings.hpp"
#include "preflight/memory.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <optional>

namespace tutti {

// Throws if --resume names a folder without a run, which may be mistyped, and no options of a new run are given.
// Collective.
void refuse_absent_run(World& world, const RunConfig& config);

// The newest good checkpoint of the run that --resume continues, or the newer state that a host has kept in memory, if
// there is one. `config` becomes that of the checkpoint, merged with the given options. If the run ended before its
// first checkpoint, it becomes that of its config.toml, unless options of a training are given. Collective.
std::optional<LoadedCheckpoint> find_resumed(World& world, RunConfig& config, DamagedPolicy damaged, const Log& log);

// The checkpoint that a training starts from, and its network.
struct RunStart {
  NetworkSpec model;
  std::optional<LoadedCheckpoint> resumed;  // the newest good checkpoint of this run
  std::optional<LoadedCheckpoint> weights;  // initial weights from another run
};
// Loads the weights of --init-from unless the run is resumed; without --model, their network becomes that of `config`.
// Throws the same error on all ranks. Collective.
RunStart make_start(World& world, RunConfig& config, std::optional<LoadedCheckpoint> resumed, const Log& log);

// Of the data of a run that starts from this checkpoint, if any.
DataRequest data_request_of(const RunConfig& config, const std::optional<LoadedCheckpoint>& resumed);
Sources sources_of(const RunStart& start);

// Throws on all ranks if these are not the data that the checkpoint was trained and evaluated on, as far as it stores
// their digests. Copies the digests of files that were not read this time from it. Returns warnings.
Findings refuse_other_data(const LoadedCheckpoint& resumed, const RunConfig& config, DataDigests& digests);

// The memory and the checkpoints of a run on this rank.
struct RunNeeds {
  JobMemory memory{};
  std::optional<FileShard> shard{};  // of every checkpoint, which this rank saves; empty: it saves none
  bool splits_checkpoints = false;   // each consists of more than one file
  bool keeps_states = false;         // in memory
};
// Checks the memory of the hosts and the limits of the processes, including what saving needs if the run has --out. If
// `device_free` is known, also checks the memory of the GPU. Collective.
RunNeeds check_needs(World& world, const PreparedRun& run, std::optional<std::int64_t> device_free = {});

// Warns of options, cores, images, classes and initial weights that do not suit the run. `of_one_class`: a training set
// of one class. Collective.
Findings check_run(World& world, const PreparedRun& run, const RunStart& start, const RunPlan& plan,
                   Severity of_one_class);

}  // namespace tutti
