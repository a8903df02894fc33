#pragma once
// A data set as a network takes it that was trained on another one: its images in the network's channels, its labels
// by the numbers of the network's classes. Sizes are image_recipe.hpp's business.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include <memory>
#include <string>
#include <vector>

namespace tutti {

struct TrainedOn {
  Shape image;  // C, H, W that the network gets
  int classes = 0;
  std::vector<std::string> class_names;  // empty where the data named none
};

// Why the labels of such data are not among the network's classes; empty where they are, or where there are no labels.
// Where both name their classes, the names count, else the numbers.
std::string fault_of_labels(const DatasetInfo& data, const TrainedOn& network);

// The set itself where nothing is to be changed. Colour becomes gray as televisions do it (0.299, 0.587, 0.114), gray
// becomes colour; labels at fault are dropped. What is done is added to `notes`. Throws an input error for channels
// that are neither one nor three.
std::unique_ptr<Dataset> fit_to(const TrainedOn& network, std::unique_ptr<Dataset> data,
                                std::vector<std::string>& notes);

}  // namespace tutti
