#pragma once
// The data that a network was trained on, and other data that are adapted to it: gray and color images are converted,
// and labels mapped to the network's classes. image_recipe.hpp adapts image sizes. The text in a checkpoint (/run/data)
// that describes the data lets changed data be detected, too; docs/formats.md describes it.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// Describes the data that the network was trained on.
struct TrainedOn {
  Shape image;  // the network's input, C, H, W
  int classes = 0;
  std::vector<std::string> class_names;  // empty if the data had no class names
  bool keeps_short_side = false;         // ImageRecipe::keeps_short_side
};

// Why the data's labels do not match the network's classes; empty if they do, or if the data are unlabelled. Compares
// class names if both have them, otherwise the number of classes.
std::string label_mismatch(const DatasetInfo& data, const TrainedOn& network);

// Returns `data` itself if nothing needs to change. Converts color to gray (Rec. 601 luma: 0.299, 0.587, 0.114) and
// gray to color, and drops labels that do not match. Adds a line for each change to `notes`. Throws an input error
// unless the channels are equal, or 1 and 3.
std::unique_ptr<Dataset> adapt_to(const TrainedOn& network, std::unique_ptr<Dataset> data,
                                  std::vector<std::string>& notes);

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
