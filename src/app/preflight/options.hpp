#pragma once
// Checks options for values that are valid but have no effect, or a bad one, with the data of the run.

#include "tutti/data/dataset.hpp"
#include "tutti/nn/network.hpp"

#include "../findings.hpp"
#include "../run_config.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// Warns if the images of a data file are enlarged to the network's input, or cropped once more.
Findings check_image_size(const DatasetInfo& train, const Shape& input);
// Warns of classes without training samples.
Findings check_classes(const DatasetInfo& train);
// Why nothing can be learned from a training set whose images are all of one class; empty for others.
std::string one_class_text(const DatasetInfo& train);
// Images and classes. A set of one class is an error of `trainer check`, and training warns of it.
Findings check_data(const DatasetInfo& train, const Shape& input, Severity of_one_class);
// Warns of a test set without images of some of these classes, or of options without effect if there is none (null).
Findings check_tests(const RunConfig& config, const std::vector<std::string>& class_names, const Dataset* test);

// Warns of a learning rate of 0, and of options of a schedule that have no effect. The schedule covers `scheduled` of
// the `planned` steps.
Findings check_rates(const RunConfig& config, std::int64_t planned, std::int64_t scheduled);
// Warns of a batch larger than the training set, and of parts that are empty or too small for batch norm, in all
// batches or in the last of an epoch.
Findings check_parts(const RunConfig& config, bool has_batch_norm, std::int64_t train_samples);

// Warns of biases that a batch norm right after them subtracts again: they cost time and never change the output.
Findings check_biases(const Network& network);

}  // namespace tutti
