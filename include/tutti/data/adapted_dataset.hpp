#pragma once
// Adapts a data set to a network that was trained on another one: converts gray and color images and maps labels to
// the network's classes. image_recipe.hpp adapts image sizes.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include <memory>
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

}  // namespace tutti
