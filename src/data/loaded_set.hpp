#pragma once
// A data set on its way from a source into a block of bytes: what is known of it, its labels, and either its pixels or
// where they can be read.

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

// A file that the labels of some samples, one after another, were read from.
struct LabelFile {
  std::string path;
  std::int64_t samples = 0;
};

struct ImageFiles {
  std::filesystem::path folder;
  std::vector<std::string> names;   // relative to the folder
  std::vector<std::int64_t> bytes;  // how long each file is
  bool upright = true;              // turned as their EXIF orientation says
};

// Images in a data file, one row of an array for each sample.
struct StoredImages {
  std::string path;
  std::string array;
  std::vector<std::int64_t> rows;
  std::uint64_t digest = 0;               // of all the array's rows with their labels, as the file has it
  std::vector<std::int32_t> checksums{};  // of each of these rows; empty in a file of an early version
};

struct LoadedSet {
  DatasetInfo info;  // classes 0: those that have names or labels; samples and class_samples are counted at the end
  std::vector<std::int32_t> labels;
  std::variant<std::vector<std::uint8_t>, ImageFiles, StoredImages> pixels;
  std::optional<std::uint64_t> digest;   // of what was held out and what that left; else that of labels and pixels
  std::vector<LabelFile> label_files{};  // in the order of the samples; empty when samples were taken out
};

std::uint64_t digest_of(const LoadedSet& set);

struct LoadedPair {
  LoadedSet train;
  std::optional<LoadedSet> test;
  std::vector<std::string> notes;
};

// The sets as one block of bytes without addresses, so that it can lie anywhere in memory. A block belongs to the
// process that made it and those started with it; it is no file format. Each set is released as soon as it has been
// written, so that pixels are in memory twice for one set at most. open_loaded() reads it.
std::vector<std::byte> write_block(LoadedPair pair);

// Takes samples out of `set`, given by ascending numbers, and returns them as a set with the same facts; both
// keep their order.
LoadedSet take_out(LoadedSet& set, std::span<const std::size_t> chosen);

// Takes a ratio of the samples out of `set`, chosen by the seed, and returns them. Both digests are that of the whole
// set and of what was chosen, so that they do not depend on where the pixels are.
// Throws a usage error when one of the two would be empty.
LoadedSet hold_out(LoadedSet& set, double ratio, std::uint64_t seed);

// Mean and deviation of each channel over many images, by exact integer sums: the same in any order and on any machine.
class ChannelSums {
 public:
  explicit ChannelSums(const Shape& image);  // C, H, W

  void add(std::span<const std::uint8_t> images);  // whole ones
  void add(const ChannelSums& others);             // of images of the same shape
  ChannelStatistics statistics() const;

 private:
  std::size_t plane_;
  std::uint64_t pixels_ = 0;  // of each channel
  std::vector<std::uint64_t> sums_;
  std::vector<std::uint64_t> square_sums_;
};

// Of whole images of this shape, one after another.
ChannelStatistics statistics_of(std::span<const std::uint8_t> images, const Shape& image);

// How many samples each class has. Throws an input error that names the set and the first sample with a label that no
// class has.
std::vector<std::int64_t> count_classes(const DatasetInfo& info, std::span<const std::int32_t> labels);

}  // namespace tutti
