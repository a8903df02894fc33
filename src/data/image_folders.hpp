#pragma once
// Data sets of image files: folders of class folders, tables of labels, and files without labels.

#include "tutti/data/dataset.hpp"

#include "data_block.hpp"
#include "loaded_set.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Every sub-folder is a class of its name and holds that class's images. Classes and files are in the order of their
// names. The sets may be in train/ and in test/, valid/ or val/.
// The set's images in class folders, or nothing where no sub-folder holds an image. What is left out is told in
// `notes`. Throws an input error for a class without images.
std::optional<LoadedSet> list_class_folders(const std::filesystem::path& folder, std::vector<std::string>& notes);

// The sub-folder of that set, or nothing: "train" for the training set, and for the test set the first of "test",
// "valid" and "val" that holds class folders.
std::optional<std::filesystem::path> find_set_folder(const std::filesystem::path& folder, bool is_test);

// Borrowed: all file names, one after another, and where each ends.
struct FileNames {
  std::span<const char> letters;
  std::span<const std::uint64_t> ends;
  bool upright = true;  // as ImageFiles has it
};

class ImageFolder : public Dataset {
 public:
  // `labels` are borrowed, too.
  ImageFolder(DatasetInfo info, std::string folder, FileNames names, std::span<const std::int32_t> labels,
              std::uint64_t digest);

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;
  std::string file_of(std::int64_t sample) const override { return path_of(info_.index_of(sample)); }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return digest_; }

 private:
  std::string path_of(std::size_t sample) const;

  DatasetInfo info_;
  std::string folder_;
  FileNames names_;
  std::span<const std::int32_t> labels_;
  std::uint64_t digest_;
};

// Image files without labels: those that are named one by one, and those in folders that are named.

// Files in the order of the words, whatever their ending; of a folder, all .jpg, .jpeg and .png files in it and below,
// in the order of their names, its own before those below. Throws io and input errors that name the word.
LoadedPair list_images(const std::vector<std::string>& words);

// A flat folder of images with a table of their labels: labels.csv, or the folder's only .csv file. Two columns, comma
// separated, fields quoted where they hold commas, lines ended by LF or CRLF:
//   an image's file name in the folder, with its ending or without it, and its label, any text
// A first line "file,label" or "id,label" or the like is left out. Classes are the labels in their order: of the
// numbers where all are numbers, else of the texts.

// The images that the table lists, in its order; or nothing where the folder holds no images or no table. Images
// that it does not list are told in `notes`. Throws input errors that name the table's line.
std::optional<LoadedSet> list_labelled_folder(const std::filesystem::path& folder, std::vector<std::string>& notes);

}  // namespace tutti
