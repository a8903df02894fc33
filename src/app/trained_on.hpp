#pragma once
// What a checkpoint stores about the data that its network was trained on, so that other data can be brought into the
// same form, and changed data are noticed. checkpoint/checkpoint_store.hpp describes the text.

#include "tutti/data/fitted_dataset.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "preflight/finding.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <optional>
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
Findings judge_weights(const std::optional<LoadedCheckpoint>& weights, const RunConfig& config, const Network& network,
                       const DatasetInfo& data);

// Throws, on all ranks, unless these are the data that the checkpoint was trained on and evaluated with, as far as it
// stores them. Takes digests from it of files that were not read this time. Returns warnings.
Findings refuse_other_data(const LoadedCheckpoint& resumed, const RunConfig& config, DataDigests& digests);

}  // namespace tutti
