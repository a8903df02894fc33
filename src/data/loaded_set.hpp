#pragma once
// A data set on its way from a source into a block: what is known of it, its labels, and either its pixels or where
// they can be read.

#include "tutti/data/dataset.hpp"

#include "image_files.hpp"
#include "labelled_images.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tutti {

// Images in a data file, one row of an array for each sample.
struct StoredImages {
  std::string path;
  std::string array;
  std::vector<std::int64_t> rows;
  std::uint64_t digest = 0;               // of all the array's rows with their labels, as the file tells it
  std::vector<std::int32_t> checksums{};  // of each of these rows; empty in a file of an early version
};

struct LoadedSet {
  DatasetInfo
      info;  // classes 0: as many as have names, or as labels show; samples and class_samples are counted at the end
  std::vector<std::int32_t> labels;
  std::variant<std::vector<std::uint8_t>, ImageFiles, StoredImages> pixels;
  std::optional<std::uint64_t> digest;   // of what was held out and what that left; else that of labels and pixels
  std::vector<LabelFile> label_files{};  // as LabelledImages has them, as long as no sample was taken out
};

std::uint64_t digest_of(const LoadedSet& set);

// Takes samples out of `set`, given by ascending numbers, and returns them as a set that tells the same of itself; both
// keep their order.
LoadedSet take_out(LoadedSet& set, std::span<const std::size_t> chosen);

// Takes a share of the samples out of `set`, chosen by the seed, and returns them. Both digests are that of the whole
// set and of what was chosen, so that they do not hang on where the pixels are.
// Throws a usage error when one of the two would be empty.
LoadedSet hold_out(LoadedSet& set, double ratio, std::uint64_t seed);

}  // namespace tutti
