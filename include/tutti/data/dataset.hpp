#pragma once
// Labelled images, addressed by sample number. Pixels are bytes in C, H, W order; labels are 0 to classes - 1.
// image_recipe.hpp turns the pixels into network inputs.

#include "tutti/backend/image_store.hpp"
#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Mean and standard deviation of pixel / 255, one value per channel; both empty if unknown.
struct ChannelStatistics {
  std::vector<double> mean;
  std::vector<double> deviation;
  friend bool operator==(const ChannelStatistics&, const ChannelStatistics&) = default;
};

// An image that was left out of the data set.
struct SkippedImage {
  std::int64_t next_sample = 0;  // the sample that follows it; the number of samples if it is the last
  std::string name;              // file name
  std::string problem;
};

// Digests of the bytes of image files, which Dataset::digest() does not cover.
struct FileContents {
  std::int64_t sampled_files = 0;        // number of files in the sample, evenly spaced
  std::uint64_t sample_digest = 0;       // of their bytes
  std::optional<std::uint64_t> whole{};  // digest of all files' bytes, if all were read
  friend bool operator==(const FileContents&, const FileContents&) = default;
};

// What is known of image files without opening them.
struct FileListing {
  std::int64_t bytes = 0;      // of all files
  std::uint64_t modified = 0;  // digest of the times of their last changes or, in an encoded file, of their checksums
};

struct DatasetInfo {
  std::string name;
  Shape image;  // C, H, W; H and W are 0 if the images differ in size
  int classes = 0;
  std::vector<std::string> class_names{};  // empty if the source has no names
  std::int64_t samples = 0;
  ChannelStatistics statistics{};             // of the corresponding training set
  std::vector<std::int64_t> class_samples{};  // samples per class; empty if not counted
  bool labelled = true;                       // false: all labels are 0 and meaningless
  std::vector<SkippedImage> skipped{};        // ascending
  std::optional<FileContents> contents{};     // of image files, before samples were held out
  std::optional<FileListing> listing{};       // of image files
  // Of a data file: whether its images have the whole short side of the pictures that they were made from. Earlier
  // versions of data convert cropped it.
  std::optional<bool> has_short_side{};

  bool sizes_differ() const { return image[1] == 0; }
  // The sample as an array index. Throws an internal error if there is no such sample.
  std::size_t index_of(std::int64_t sample) const;
  // The number of samples to read at a time, to bound memory: some MiB of images; 1 if sizes differ.
  std::int64_t samples_at_once() const;
};

// One image. Borrowed.
struct ImageView {
  const std::uint8_t* pixels = nullptr;
  Shape shape;  // C, H, W
};

// A JPEG, PNG or TIFF file in memory, borrowed.
struct ImageFile {
  std::span<const std::uint8_t> bytes;
  std::string name;          // for error messages
  bool applies_exif = true;  // false: ignore the EXIF orientation
  std::string remedy{};      // what to do if it cannot be decoded, for the message
};

// Encodes a PNG file; in image_codec.cpp, the only user of libpng. Throws an internal error unless the image has 1
// (gray) or 3 channels.
std::vector<std::byte> encode_png(const ImageView& image);

// Samples in the requested order, and the memory of those that were read or decoded.
struct SampleBatch {
  std::vector<ImageView> images;
  std::vector<std::int32_t> labels;
  std::vector<std::vector<std::uint8_t>> buffers;  // reused by later reads
};

// The names of the samples' image files. Borrowed.
struct PackedNames {
  std::span<const char> letters;        // the concatenated names
  std::span<const std::uint64_t> ends;  // of each name; empty: the samples have no names

  std::string of(std::size_t sample) const;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  // Replaces the contents of `batch`. The images are valid until the next read into it and while the data set lives.
  // Thread-safe for different batches. Throws input or io errors that name the file and the reason.
  virtual void read(std::span<const std::int64_t> samples, SampleBatch& batch) const = 0;
  // Whether the images are files that read() decodes. Then labels() are known, and readers decode of image_file() only
  // what they need.
  virtual bool is_encoded() const { return false; }
  // The sample's file; its bytes are in `buffer`, or in memory that lives as long as the data set. Thread-safe for
  // different buffers. Throws as read() does; an internal error unless is_encoded().
  virtual ImageFile image_file(std::int64_t sample, std::vector<std::byte>& buffer) const;
  // The name of the sample's image file, relative to the folder of the data set; empty if there is none.
  virtual std::string name_of(std::int64_t) const { return {}; }
  // The path of that file. For a data file, which does not know the folder, its name.
  virtual std::string file_of(std::int64_t sample) const { return name_of(sample); }
  // All labels, for class weights and balanced batches; empty: not known without reading the images. Borrowed.
  virtual std::span<const std::int32_t> labels() const { return {}; }
  // All images and labels, if they are in memory and of one size, for copying to a GPU. Borrowed.
  virtual std::optional<ImageSet> resident_images() const { return std::nullopt; }
  // The bytes that the samples occupy in memory; 0 for a data set whose images are loaded lazily.
  virtual std::size_t resident_bytes() const = 0;
  // Equal data give equal digests from any source: digest("images") + digest("labels"). For a held-out set and its
  // remaining training set, the digest covers the whole set and the indices held out. For a folder of image files it
  // covers names, sizes and labels; info().contents covers the files' bytes.
  virtual std::uint64_t digest() const = 0;
};

// The value of --class-weights for a training set: none (an empty result), auto (inversely proportional to the samples
// of each class), or a weight per class, separated by commas. They are scaled so that their mean over the samples is 1.
// Throws a usage error.
std::vector<double> class_weights(const std::string& text, const Dataset& data);

// A data set in borrowed memory.
class MemoryDataset : public Dataset {
 public:
  // `images`, `labels` and `names` are borrowed. `known_digest` saves computing their digest. Throws an input error
  // naming the data set and the first sample whose label is out of range.
  MemoryDataset(DatasetInfo info, std::span<const std::uint8_t> images, std::span<const std::int32_t> labels,
                std::optional<std::uint64_t> known_digest = std::nullopt, PackedNames names = {});

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;
  std::string name_of(std::int64_t sample) const override { return names_.of(info_.index_of(sample)); }
  std::optional<ImageSet> resident_images() const override { return ImageSet{images_, labels_, info_.image}; }
  std::span<const std::int32_t> labels() const override { return labels_; }
  std::size_t resident_bytes() const override { return images_.size() + labels_.size_bytes(); }
  std::uint64_t digest() const override;

 private:
  DatasetInfo info_;
  std::span<const std::uint8_t> images_;
  std::span<const std::int32_t> labels_;
  std::optional<std::uint64_t> known_digest_;
  PackedNames names_;
};

}  // namespace tutti
