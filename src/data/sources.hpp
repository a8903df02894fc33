#pragma once
// The sources of data sets: built-in sets, data files, published binary formats, and folders of images.
// open_data.cpp chooses among them.

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

// Both sets of a data file (tutti/data/data_file.hpp): their pixels, compared with their digests; or where these are,
// when they have more than request.most_resident_bytes bytes (0: never). Those are compared with their digests only as
// request.data_file_check asks. The structure of the file is compared with its seal in any case.
LoadedPair read_data_file(const std::string& path, const DataRequest& request);

// Published binary formats. Files may be gzip-compressed. What a header says is compared with the size of its file
// before memory is taken for it.
//
// The idx format of the MNIST family: big-endian 32-bit words, then bytes.
//   images  magic 0x00000803, N, H, W, then N*H*W pixels; or magic 0x00000804, N, C, H, W, then N*C*H*W pixels
//   labels  magic 0x00000801, N, then N labels
//
// CIFAR-10's binary batches: records of one label byte (0 .. 9) and 3x32x32 pixels, without a header.
// batches.meta.txt beside them, where there is one, holds the ten class names, one a line.

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

LoadedSet read_idx(const IdxFiles& files);

// Batches of one set, in their order.
LoadedSet read_cifar(const std::vector<std::filesystem::path>& files);

// The first of these sets ("train", "t10k") that the folder holds as idx files under any of their usual names, or the
// CIFAR batches whose names begin so; or nothing. Throws an io error for images without labels and labels without
// images.
std::optional<LoadedSet> read_binary_set(const std::filesystem::path& folder,
                                         std::initializer_list<std::string_view> idx_sets,
                                         std::string_view cifar_prefix);

// Sets that the program draws itself. Sample i is a pure function of i, so every machine has the same set without a
// download.

// Glyphs: digits 0 .. 9 drawn by arithmetic on integers, 1x28x28. Too varied for a linear model, easy for a small
// network.
inline constexpr std::int64_t kGlyphTrainSamples = 20'000;
inline constexpr std::int64_t kGlyphTestSamples = 4'000;

// Samples first .. first + count - 1 of the endless series; each run of ten that begins at a multiple of ten
// holds every digit once.
LoadedSet draw_glyphs(std::string name, std::int64_t first, std::int64_t count);

// Random images of any size, for measurements and tests: a coarse pattern that belongs to the label, under noise, so
// that a network can learn them. The shape changes the samples.
struct SyntheticSpec {
  std::int64_t samples = 0;
  Shape image;
  int classes = 0;
};

// Reads "NxCxHxW:classes". Throws a usage error that shows an example.
SyntheticSpec parse_synthetic(std::string_view text);

// Samples first .. first + count - 1 of the endless series.
LoadedSet draw_synthetic(std::string name, const SyntheticSpec& spec, std::int64_t first, std::int64_t count);

// JPEG and PNG files in folders.

// What a folder holds itself, sorted; hidden entries and what lies deeper are left out.
struct FolderListing {
  ImageFiles images;  // .jpg, .jpeg and .png in any case
  std::vector<std::string> folders;
  std::vector<std::string> others;
};
FolderListing list_folder(const std::filesystem::path& folder);

struct ImageFindings {
  Shape image;                        // C, H, W for all of them; H and W are 0 where they differ
  std::vector<std::size_t> bad;       // indices of the files that cannot be decoded, ascending
  std::vector<std::string> problems;  // of each of these
};

// Looks at the headers, of as many files as it takes or as asked for, and throws an input error for files that cannot
// be read; or with `find_bad` decodes every file. Uses all cores.
ImageFindings examine(const ImageFiles& files, Verification verification, bool find_bad);

// Of a sample of the files, whose choice depends on their number alone; when `whole`, of all of them, too. Uses all
// cores.
FileContents contents_of(const ImageFiles& files, bool whole);

// Decodes one file as decode_image does. Throws io and input errors that name it and the remedy.
Shape read_image(const std::string& path, std::int64_t channels, bool upright, std::vector<std::uint8_t>& pixels);

// Stands for the files of a set and their labels: digest("files"), over each one's hash of name and length, +
// digest("labels").
std::uint64_t digest_of(const ImageFiles& files, std::span<const std::int32_t> labels);

// Every sub-folder is a class of its name and holds that class's images. Classes and files are in the order of their
// names. The sets may be in train/ and in test/, valid/ or val/. The set's images in class folders, or nothing where no
// sub-folder holds an image. `notes` gets what is left out. Throws an input error for a class without images.
std::optional<LoadedSet> list_class_folders(const std::filesystem::path& folder, std::vector<std::string>& notes);

// The sub-folder of that set, or nothing: "train" for the training set, and for the test set the first of "test",
// "valid" and "val" that holds class folders.
std::optional<std::filesystem::path> find_set_folder(const std::filesystem::path& folder, bool is_test);

// Image files without labels: those that are named one by one, and those in folders that are named.

// Files in the order of the words, whatever their ending; of a folder, all .jpg, .jpeg and .png files in it and below,
// in the order of their names, its own before those below. Throws io and input errors that name the word.
LoadedPair list_images(const std::vector<std::string>& words);

// A flat folder of images with a table of their labels: labels.csv, or the folder's only .csv file. Two columns, comma
// separated, fields quoted where they hold commas, lines ended by LF or CRLF:
//   an image's file name in the folder, with its ending or without it, and its label, any text
// A first line "file,label" or "id,label" or the like is left out. Classes are the labels in their order: of the
// numbers where all are numbers, else of the texts.

// The images that the table lists, in its order; or nothing where the folder holds no images or no table. `notes` gets
// how many images it does not list. Throws input errors that name the table's line.
std::optional<LoadedSet> list_labelled_folder(const std::filesystem::path& folder, std::vector<std::string>& notes);

}  // namespace tutti
