#pragma once
// A data set while it is loaded, the block of bytes that it is loaded into, and the sources: built-in sets, data files,
// published binary formats, and folders of images. open_data.cpp selects one.

#include "tutti/backend/growing_memory.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/shape.hpp"
#include "tutti/data/open_data.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tutti {

// A file from which the labels of consecutive samples were read.
struct LabelFile {
  std::string path;
  std::int64_t samples = 0;
};

inline constexpr std::int64_t kMaxImageFileBytes = std::int64_t{1} << 30;
inline constexpr std::int64_t kColorChannels = 3;

struct ImageFiles {
  struct File {
    std::string name;  // relative to the folder
    std::int64_t bytes = 0;
    std::int64_t modified = 0;  // time of the last change
  };
  std::filesystem::path folder;
  std::vector<File> files;
  bool applies_exif = true;  // apply their EXIF orientation

  std::string path_of(std::size_t file) const { return (folder / files[file].name).string(); }
};

// Images in a data file, one array row per sample.
struct StoredImages {
  std::string path;
  std::string array;
  std::vector<std::int64_t> rows;
  std::uint64_t digest = 0;               // of all rows and their labels, as stored in the file
  std::vector<std::int32_t> checksums{};  // of each of these rows; empty in a file of an early version
};

// An HDF5 file with image files of a set, one after another.
struct EncodedShard {
  std::string path;
  std::int64_t first = 0;     // the position of its first byte among those of all shards
  std::int64_t offset = 0;    // where that byte is in the file
  std::int64_t bytes = 0;     // of the file, when it was listed
  std::int64_t modified = 0;  // time of its last change, likewise
};

// Image files in shards (encoded_file.cpp).
struct EncodedFiles {
  std::vector<EncodedShard> shards{};
  std::vector<std::int64_t> begins{};     // of each file: the position of its first byte
  std::vector<std::int32_t> bytes{};      // of each file
  std::vector<std::int32_t> checksums{};  // CRC-32C of each file
  bool applies_exif = true;
};

// Images of one size in the order of the samples, in the block of bytes that load_data fills.
struct Pixels {
  GrowingMemory* block = nullptr;  // borrowed
  std::size_t begin = 0;
  std::size_t size = 0;

  // Until the block grows.
  std::span<std::uint8_t> bytes() const { return {reinterpret_cast<std::uint8_t*>(block->data()) + begin, size}; }
  // Ends the block after them: only for those that were added last.
  void resize(std::size_t bytes);
};
// Adds zeroed pixels.
Pixels add_pixels(GrowingMemory& block, std::size_t bytes = 0);

struct LoadedSet {
  DatasetInfo info;  // classes 0: from names or labels; samples and class_samples are filled in at the end
  std::vector<std::int32_t> labels;
  std::variant<Pixels, ImageFiles, StoredImages, EncodedFiles> pixels;
  std::optional<std::uint64_t> digest;       // only after hold_out; otherwise computed from labels and pixels
  std::vector<LabelFile> label_files{};      // in the order of the samples; empty after extract_samples
  std::vector<std::string> names{};          // of the samples, from a data file; empty if it has none
  std::vector<std::string> empty_classes{};  // lines about class folders without images
};

// The name of a sample's image file, and for messages its path; of an encoded set, the HDF5 file's path and the name.
std::string name_of(const LoadedSet& set, std::size_t sample);
std::string path_of(const LoadedSet& set, std::size_t sample);

// For image files: digest("files") over the hash of each file's name and size, + digest("labels").
std::uint64_t digest_of(const LoadedSet& set);

struct LoadedPair {
  LoadedSet train;
  std::optional<LoadedSet> test;
  std::vector<std::string> notes;
  std::vector<std::string> empty_classes{};  // of both sets
};

// A block of bytes without pointers, for open_loaded(): the pixels of both sets, and then all else about them.
// It is not a file format: only processes of the same job may read it.
void begin_block(GrowingMemory& block);
void finish_block(const LoadedPair& pair, GrowingMemory& block);

// Removes the samples with these ascending indices from `set` and returns them as a set with the same metadata; both
// keep their order.
LoadedSet extract_samples(LoadedSet& set, std::span<const std::int64_t> chosen);

// Removes a ratio of the samples, chosen by split, groups and seed of the request, from `set` and returns them. Both
// digests are computed from the whole set's digest and the chosen indices, so they do not depend on how the pixels are
// stored. Throws a usage error if one of the two would be empty.
LoadedSet hold_out(LoadedSet& set, const DataRequest& request);

// Mean and standard deviation of each channel over images, by exact integer sums: independent of order and machine.
class ChannelSums {
 public:
  explicit ChannelSums(const Shape& image);  // C, H, W

  void add(std::span<const std::uint8_t> images);  // complete images
  void add(const ChannelSums& others);             // must have the same image shape
  ChannelStatistics statistics() const;
  // Of the bytes of a channel, and of their squares.
  double mean(std::size_t channel) const { return mean_of(sums_[channel]); }
  double mean_square(std::size_t channel) const { return mean_of(square_sums_[channel]); }

 private:
  double mean_of(std::uint64_t sum) const { return static_cast<double>(sum) / static_cast<double>(pixels_); }

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

// Sets of a data file (tutti/data/data_file.hpp): both, or its test set only, as the test set of another training set.
// A file without a test set has its only set in `train`. Up to request.most_resident_bytes bytes of pixels (0: a
// quarter of the host's memory) are loaded and verified by their digests. Larger sets stay in the file and are verified
// only as request.data_file_check says. The file's structure is always verified by its seal.
enum class DataFileSets { both, test_if_any };
LoadedPair read_data_file(const std::string& path, const DataRequest& request, DataFileSets sets, GrowingMemory& block);

struct ImageFindings {
  Shape image;                                            // C, H, W of all images; H and W are 0 if they differ
  std::vector<std::pair<std::int64_t, std::string>> bad;  // index and problem of each file that cannot be decoded
};

// The same of a data file of encoded images, whose seal is valid.
bool is_encoded_file(const std::string& path);
LoadedPair read_encoded_file(const std::string& path, const DataRequest& request, DataFileSets sets);
// Compares the bytes of image files with their checksums, and decodes them: all files, or a sample if `verification` or
// the request does not say so. Returns or throws what examine() does.
ImageFindings examine_encoded(const LoadedSet& set, const DataRequest& request, bool find_bad);

// Published binary formats. Files may be gzip-compressed. A header's sizes are compared with the size of its file
// before memory is allocated.
//
// The idx format of the MNIST family: big-endian 32-bit words, then bytes.
//   images  magic 0x00000803, N, H, W, then N*H*W pixels; or magic 0x00000804, N, C, H, W, then N*C*H*W pixels
//   labels  magic 0x00000801, N, then N labels
//
// CIFAR-10's binary batches: records of one label byte (0 .. 9) and 3x32x32 pixels, without a header.
// An optional batches.meta.txt in the same folder has the ten class names, one per line.

LoadedSet read_idx(const std::filesystem::path& images, const std::filesystem::path& labels, GrowingMemory& block);

// `files` are the batches of one set, in order.
LoadedSet read_cifar(const std::vector<std::filesystem::path>& files, GrowingMemory& block);

// The first of `idx_sets` ("train", "t10k") that the folder contains as idx files under any of their usual names, or
// the CIFAR batches whose names begin with `cifar_prefix`, or nothing. Throws an io error for images without labels and
// labels without images.
std::optional<LoadedSet> read_binary_set(const std::filesystem::path& folder,
                                         std::initializer_list<std::string_view> idx_sets,
                                         std::string_view cifar_prefix, GrowingMemory& block);

// Generated sets. Sample i is a pure function of i, so the set is the same on every machine without a download.

// Glyphs: digits 0 .. 9 drawn with integer arithmetic, 1x28x28. Too varied for a linear model, easy for a small
// network. Each group of ten samples that begins at a multiple of ten contains every digit once.
LoadedPair draw_glyphs(GrowingMemory& block);

// "synthetic:NxCxHxW:classes": random images of any size, for measurements and tests: a coarse pattern per label under
// noise, so that a network can learn them. The samples depend on the shape. The test set has a tenth of the samples.
inline constexpr std::string_view kSyntheticPrefix = "synthetic:";
// The training set of such a name. Throws a usage error that shows an example.
DatasetInfo parse_synthetic(const std::string& name);
LoadedPair draw_synthetic(const std::string& name, GrowingMemory& block);

// Image files in folders.

inline constexpr std::string_view kImageExtensions = ".jpg, .jpeg, .png, .tif or .tiff";  // in any case
bool has_image_extension(const std::filesystem::path& file);

// The entries of a folder, sorted, without hidden entries; not recursive.
struct FolderListing {
  std::vector<ImageFiles::File> images;
  std::vector<std::string> folders;
  std::vector<std::string> others;
};
FolderListing list_folder(const std::filesystem::path& folder);
// Size and time of a file's last change, with one system call. Throws a filesystem_error.
ImageFiles::File file_at(const std::filesystem::path& path, std::string name);

// Names the file or folder.
Error cannot_look_into(const std::filesystem::filesystem_error& failure);

// Determines the images' shape and verifies the files as `verification` says. Throws an input error for files that
// cannot be read; with `find_bad` it returns them instead. Uses all cores.
ImageFindings examine(const ImageFiles& files, Verification verification, bool find_bad);

// Whether a file of a set is in the sample of files that are read at every start.
bool is_sampled(std::size_t index, std::size_t files);
// The parts of examine() that all image files share: calls `check` on all cores, which returns an image's shape, until
// they differ in size and one is in color; if `checks_all`, for all files.
ImageFindings examine_each(std::size_t files, const std::string& where, bool checks_all, bool find_bad,
                           const std::function<Shape(std::size_t)>& check);

// Digests of the bytes of a sample of the files of a set, which depends only on their number; if `whole`, of all files,
// too. Uses all cores. Those of an encoded set are known without reading it.
FileContents contents_of(const LoadedSet& set, bool whole);

// The bytes of an image file. Throws io errors, and an input error if it is too large.
std::vector<std::byte> read_image_bytes(const std::string& path);

// Whether a folder has class folders with images, `depth` levels below it.
bool has_class_folders(const std::filesystem::path& folder, int depth);
// Lists images in class folders (at depth 1 torchvision's ImageFolder layout): every folder `depth` levels below is a
// class, named by its path, and contains its images. Classes and files are sorted by name. Returns nothing if no class
// contains an image. Adds lines about skipped entries to `notes`.
std::optional<LoadedSet> list_class_folders(const std::filesystem::path& folder, int depth,
                                            std::vector<std::string>& notes);

// Image files without labels: given one by one, or in given folders.

// Lists files in the order of `paths`, with any extension; of a folder, all image files in it and below, sorted by
// name, its own before those below. Throws io and input errors that name the path.
LoadedPair list_images(const std::vector<std::string>& paths);

// A flat folder of images with a table of their labels: labels.csv, or the folder's only .csv file. Two columns, comma
// separated, fields quoted where they hold commas, lines ended by LF or CRLF:
//   an image's file name in the folder, with or without its extension, and its label, any text
// A header line like "file,label" or "id,label" is skipped. Classes are the labels, sorted as numbers if all of them
// are numbers, otherwise as text.

// Classes, sorted as above.
std::vector<std::string> sorted_classes(const std::vector<std::string>& labels);

// A list of image files anywhere: a file that ends in .txt, .csv, .tsv or .lst with a path, relative to its folder, and
// a label in each line, separated as in such a table or by a tab or space. Throws as list_labelled_folder does.
bool is_image_list(const std::filesystem::path& path);
LoadedSet list_image_list(const std::filesystem::path& path);

// The images that the table lists, in its order; nothing if the folder contains no images or no table. Adds the number
// of images that it does not list to `notes`. Throws input errors that name the table's line.
std::optional<LoadedSet> list_labelled_folder(const std::filesystem::path& folder, std::vector<std::string>& notes);

}  // namespace tutti
