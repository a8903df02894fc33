#pragma once
// The text in a checkpoint (/run/data) that describes the data that its network was trained on, so that other data can
// be converted to the same form and changed data are detected. docs/formats.md describes it.

#include "tutti/data/adapted_dataset.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

// Digests of a run's data, compared on a resume and between hosts.
struct DataDigests {
  std::uint64_t train = 0;
  std::optional<std::uint64_t> test{};  // empty: no test set
  std::optional<FileContents> train_files{};
  std::optional<FileContents> test_files{};
};
DataDigests digests_of(const DataPair& data);

std::string trained_on_text(const TrainedOn& data, const DataDigests& digests);
// Both are empty if an early version saved the checkpoint, and throw a checkpoint error that names it if the text is
// damaged.
std::optional<TrainedOn> trained_on(const LoadedCheckpoint& loaded);
std::optional<DataDigests> stored_digests(const LoadedCheckpoint& loaded);

}  // namespace tutti
