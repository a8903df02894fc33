#pragma once
// Labelled images, addressed by sample number. Pixels are bytes in C, H, W order; labels count from 0 to
// classes - 1. What happens to the pixels on their way into a network is image_recipe.hpp's business.

#include "tutti/backend/image_store.hpp"
#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Of pixel / 255, one value per channel; both empty where they are unknown.
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;
  friend bool operator==(const ChannelStatistics&, const ChannelStatistics&) = default;
};

// An image that was left out of a set.
struct SkippedImage {
  std::int64_t before = 0;  // the sample that follows it, or the number of samples
  std::string name;         // of its file
  std::string problem;
};

// What the files of a set of images hold, which its digest() does not cover.
struct FileContents {
  std::int64_t sampled = 0;              // how many of them were read, spread evenly
  std::uint64_t sample = 0;              // digest of their bytes
  std::optional<std::uint64_t> whole{};  // of all files' bytes, where all were read
  friend bool operator==(const FileContents&, const FileContents&) = default;
};

struct DatasetInfo {
  std::string name;
  Shape image;  // C, H, W; H and W are 0 where the images differ in size
  int classes = 0;
  std::vector<std::string> class_names{};  // empty where the source names none
  std::int64_t samples = 0;
  ChannelStatistics statistics{};             // of the training set that this set belongs to
  std::vector<std::int64_t> class_samples{};  // how many samples each class has; empty where they were not counted
  bool labelled = true;                       // false: labels are all 0 and mean nothing
  std::vector<SkippedImage> skipped{};        // in their order
  std::optional<FileContents> contents{};     // of image files, before samples were held out

  bool sizes_differ() const { return image[1] == 0; }
  // The index of a sample in arrays of them. Throws an internal error where there is no such sample.
  std::size_t index_of(std::int64_t sample) const;
  // How many samples to read at a time where the images take memory: some MiB of them; one where sizes differ.
  std::int64_t samples_at_once() const;
};

// One image. Borrowed.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  Shape shape;  // C, H, W
};

// As a PNG file, for people to look at. Throws an internal error for other than 1 (gray) or 3 channels.
std::vector<std::byte> encode_png(const ImageView& image);

// Some samples in the order in which they were asked for, and the memory for those that had to be fetched.
struct SampleBatch {
  std::vector<ImageView> images;
  std::vector<std::int32_t> labels;
  std::vector<std::vector<std::uint8_t>> room;  // kept between reads, so that it is not allocated again
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  // Replaces what is in `batch`. The images stay valid until the next read into it, while the data set lives.
  // Thread-safe for different batches. Throws input or io errors that name the file and the reason.
  virtual void read(std::span<const std::int64_t> samples, SampleBatch& batch) const = 0;
  // The file that holds this sample alone; empty where there is none.
  virtual std::string file_of(std::int64_t) const { return {}; }
  // All images and labels, where they lie in memory and have one size, for a device that can store them too. Borrowed.
  virtual std::optional<HeldImages> resident_images() const { return std::nullopt; }
  // The bytes that the samples occupy in memory; 0 for a data set whose images are read when they are asked for.
  virtual std::size_t resident_bytes() const = 0;
  // Equal data give equal digests from any source: digest("images") + digest("labels"), and for samples held out, or
  // what that left, which ones they are of such data. A folder of image files stands for its names, sizes and labels;
  // what the files hold is in info().contents.
  virtual std::uint64_t digest() const = 0;
};

// A data set held in memory that somebody else owns.
class MemoryDataset : public Dataset {
 public:
  // `images` and `labels` are borrowed, and the digest is theirs where it is known. Throws an input error naming the
  // set and the first sample whose label is out of range.
  MemoryDataset(DatasetInfo info, std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                std::optional<std::uint64_t> known_digest = std::nullopt);

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;
  std::optional<HeldImages> resident_images() const override { return HeldImages{images_, labels_, info_.image}; }
  std::size_t resident_bytes() const override { return images_.size() + labels_.size_bytes(); }
  std::uint64_t digest() const override;

 private:
  DatasetInfo info_;
  std::span<const std::uint8_t> images_;
  std::span<const std::int32_t> labels_;
  std::optional<std::uint64_t> known_digest_;
};

}  // namespace tutti
