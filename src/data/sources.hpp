#pragma once
// The sources of data sets: built-in sets, data files, published binary formats, and folders of images.
// open_data.cpp selects one.

#include "tutti/data/open_data.hpp"

#include "loaded_set.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// Both sets of a data file (tutti/data/data_file.hpp). Up to request.most_resident_bytes bytes of pixels (0: any
// number) are loaded and verified by their digests. Larger sets stay in the file and are verified only as
// request.data_file_check says. The file's structure is always verified by its seal.
LoadedPair read_data_file(const std::string& path, const DataRequest& request);

// Published binary formats. Files may be gzip-compressed. A header's sizes are compared with the size of its file
// before memory is allocated.
//
// The idx format of the MNIST family: big-endian 32-bit words, then bytes.
//   images  magic 0x00000803, N, H, W, then N*H*W pixels; or magic 0x00000804, N, C, H, W, then N*C*H*W pixels
//   labels  magic 0x00000801, N, then N labels
//
// CIFAR-10's binary batches: records of one label byte (0 .. 9) and 3x32x32 pixels, without a header.
// An optional batches.meta.txt in the same folder has the ten class names, one per line.

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

LoadedSet read_idx(const IdxFiles& files);

// `files` are the batches of one set, in order.
LoadedSet read_cifar(const std::vector<std::filesystem::path>& files);

// The first of `idx_sets` ("train", "t10k") that the folder contains as idx files under any of their usual names, or
// the CIFAR batches whose names begin with `cifar_prefix`, or nothing. Throws an io error for images without labels and
// labels without images.
std::optional<LoadedSet> read_binary_set(const std::filesystem::path& folder,
                                         std::initializer_list<std::string_view> idx_sets,
                                         std::string_view cifar_prefix);

// Generated sets. Sample i is a pure function of i, so the set is the same on every machine without a download.

// Glyphs: digits 0 .. 9 drawn with integer arithmetic, 1x28x28. Too varied for a linear model, easy for a small
// network.
inline constexpr std::int64_t kGlyphTrainSamples = 20'000;
inline constexpr std::int64_t kGlyphTestSamples = 4'000;

// Samples first .. first + count - 1 of the infinite series; each group of ten that begins at a multiple of ten
// contains every digit once.
LoadedSet draw_glyphs(std::string name, std::int64_t first, std::int64_t count);

// Random images of any size, for measurements and tests: a coarse pattern per label under noise, so that a network can
// learn them. The samples depend on the shape.
struct SyntheticSpec {
  std::int64_t samples = 0;
  Shape image;
  int classes = 0;
};

// Reads "NxCxHxW:classes". Throws a usage error that shows an example.
SyntheticSpec parse_synthetic(std::string_view text);

// Samples first .. first + count - 1 of the infinite series.
LoadedSet draw_synthetic(std::string name, const SyntheticSpec& spec, std::int64_t first, std::int64_t count);

// JPEG and PNG files in folders.

// The entries of a folder, sorted, without hidden entries; not recursive.
struct FolderListing {
  ImageFiles images;  // .jpg, .jpeg and .png in any case
  std::vector<std::string> folders;
  std::vector<std::string> others;
};
FolderListing list_folder(const std::filesystem::path& folder);

struct ImageFindings {
  Shape image;                        // C, H, W of all images; H and W are 0 if they differ
  std::vector<std::size_t> bad;       // indices of the files that cannot be decoded, ascending
  std::vector<std::string> problems;  // of each bad file
};

// Determines the images' shape and verifies the files as `verification` says. Throws an input error for files that
// cannot be read; with `find_bad` it decodes every file and returns the bad ones instead. Uses all cores.
ImageFindings examine(const ImageFiles& files, Verification verification, bool find_bad);

// Digests of the bytes of a sample of the files, which depends only on their number; if `whole`, of all files, too.
// Uses all cores.
FileContents contents_of(const ImageFiles& files, bool whole);

// Decodes one file as decode_image does. Throws io and input errors that name it and the remedy.
Shape read_image(const std::string& path, std::int64_t channels, bool upright, std::vector<std::uint8_t>& pixels);

// The digest of a set of image files: digest("files") over the hash of each file's name and size, + digest("labels").
std::uint64_t digest_of(const ImageFiles& files, std::span<const std::int32_t> labels);

// Lists images in class folders (torchvision's ImageFolder layout): every sub-folder is a class and contains its
// images. Classes and files are sorted by name. Returns nothing if no sub-folder contains an image. Adds lines about
// skipped entries to `notes`. Throws an input error for a class without images.
std::optional<LoadedSet> list_class_folders(const std::filesystem::path& folder, std::vector<std::string>& notes);

// The sub-folder of the training or test set, or nothing: "train", or the first of "test", "valid" and "val" that
// contains class folders.
std::optional<std::filesystem::path> find_set_folder(const std::filesystem::path& folder, bool is_test);

// Image files without labels: given one by one, or in given folders.

// Lists files in the order of the words, with any extension; of a folder, all .jpg, .jpeg and .png files in it and
// below, sorted by name, its own before those below. Throws io and input errors that name the word.
LoadedPair list_images(const std::vector<std::string>& paths);

// A flat folder of images with a table of their labels: labels.csv, or the folder's only .csv file. Two columns, comma
// separated, fields quoted where they hold commas, lines ended by LF or CRLF:
//   an image's file name in the folder, with or without its extension, and its label, any text
// A header line like "file,label" or "id,label" is skipped. Classes are the labels, sorted as numbers if all of them
// are numbers, otherwise as text.

// The images that the table lists, in its order; nothing if the folder contains no images or no table. Adds the number
// of images that it does not list to `notes`. Throws input errors that name the table's line.
std::optional<LoadedSet> list_labelled_folder(const std::filesystem::path& folder, std::vector<std::string>& notes);

}  // namespace tutti
