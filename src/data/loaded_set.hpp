#pragma once
// A data set between its source and the block of bytes: its metadata and labels, and either its pixels or where to read
// them.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace tutti {

// A file from which the labels of consecutive samples were read.
struct LabelFile {
  std::string path;
  std::int64_t samples = 0;
};

struct ImageFiles {
  std::filesystem::path folder;
  std::vector<std::string> names;   // relative to the folder
  std::vector<std::int64_t> bytes;  // file sizes
  bool upright = true;              // apply their EXIF orientation
};

// Images in a data file, one array row per sample.
struct StoredImages {
  std::string path;
  std::string array;
  std::vector<std::int64_t> rows;
  std::uint64_t digest = 0;               // of all rows and their labels, as stored in the file
  std::vector<std::int32_t> checksums{};  // of each of these rows; empty in a file of an early version
};

struct LoadedSet {
  DatasetInfo info;  // classes 0: from names or labels; samples and class_samples are filled in at the end
  std::vector<std::int32_t> labels;
  std::variant<std::vector<std::uint8_t>, ImageFiles, StoredImages> pixels;
  std::optional<std::uint64_t> digest;   // only after hold_out; otherwise computed from labels and pixels
  std::vector<LabelFile> label_files{};  // in the order of the samples; empty after extract_samples
};

std::uint64_t digest_of(const LoadedSet& set);

struct LoadedPair {
  LoadedSet train;
  std::optional<LoadedSet> test;
  std::vector<std::string> notes;
};

// Writes the sets to one block of bytes without pointers, for open_loaded(). It is not a file format: only processes of
// the same job may read it. Each set is released as soon as it has been written, so at most one set's pixels are in
// memory twice.
std::vector<std::byte> write_block(LoadedPair pair);

// Removes the samples with these ascending indices from `set` and returns them as a set with the same metadata; both
// keep their order.
LoadedSet extract_samples(LoadedSet& set, std::span<const std::size_t> chosen);

// Removes a ratio of the samples, chosen by the seed, from `set` and returns them. Both digests are computed from the
// whole set's digest and the chosen indices, so they do not depend on how the pixels are stored. Throws a usage error
// if one of the two would be empty.
LoadedSet hold_out(LoadedSet& set, double ratio, std::uint64_t seed);

// Mean and standard deviation of each channel over images, by exact integer sums: independent of order and machine.
class ChannelSums {
 public:
  explicit ChannelSums(const Shape& image);  // C, H, W

  void add(std::span<const std::uint8_t> images);  // complete images
  void add(const ChannelSums& others);             // must have the same image shape
  ChannelStatistics statistics() const;

 private:
  std::size_t plane_;
  std::uint64_t pixels_ = 0;  // of each channel
  std::vector<std::uint64_t> sums_;
  std::vector<std::uint64_t> square_sums_;
};

// Statistics of consecutive images of this shape.
ChannelStatistics statistics_of(std::span<const std::uint8_t> images, const Shape& image);

// The number of samples of each class. Throws an input error that names the set and the first sample whose label is out
// of range.
std::vector<std::int64_t> count_classes(const DatasetInfo& info, std::span<const std::int32_t> labels);

}  // namespace tutti
