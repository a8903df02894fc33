#pragma once
// The way from a user's options to an assembled training, which `trainer train` and `trainer check` go alike: what it
// starts from, and what a checkpoint stores about the data that its network was trained on, so that other data can be
// brought into the same form, and changed data are noticed. storage/checkpoint_store.hpp describes that text.

#include "tutti/data/fitted_dataset.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/nn/network_spec.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "assemble.hpp"
#include "preflight/findings.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>

namespace tutti {

// Digests to compare a run's data by, when it is resumed and among hosts.
struct DataDigests {
  std::uint64_t train = 0;
  std::optional<std::uint64_t> test{};  // empty: no test set
  std::optional<FileContents> train_files{};
  std::optional<FileContents> test_files{};
};
DataDigests digests_of(const DataPair& data);

std::string trained_on_text(const Network& network, const DatasetInfo& data, const DataDigests& digests);
// Nothing if an early version saved the checkpoint. Throws a checkpoint error that names it if the text is damaged.
std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded);

// Warns of differences between what the first weights, if any, were trained for, and what this run's network gets and
// predicts.
Findings check_weights(const std::optional<LoadedCheckpoint>& weights, const RunConfig& config, const Network& network,
                       const DatasetInfo& data);

// Throws, on all ranks, unless these are the data that the checkpoint was trained on and evaluated with, as far as it
// stores them. Takes digests from it of files that were not read this time. Returns warnings.
Findings refuse_other_data(const LoadedCheckpoint& resumed, const RunConfig& config, DataDigests& digests);

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
void check_run(World& world, const Assembly& assembly, const RunStart& start, Obstacles& obstacles);

}  // namespace tutti
