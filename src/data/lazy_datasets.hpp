#pragma once
// Data sets whose images are read from files while they are used: image files in a folder, and rows of a data file.
// All spans are borrowed from the block of bytes of data_block.cpp.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace tutti {

struct LazySet {
  DatasetInfo info;
  std::span<const std::int32_t> labels;
  PackedNames names;
  std::uint64_t digest = 0;
};

// ImageFiles in a block, whose names are those of the set.
struct PackedImageFiles {
  std::filesystem::path folder;
  bool applies_exif = true;
};
std::unique_ptr<Dataset> make_image_folder(LazySet set, PackedImageFiles files);

// StoredImages in a block.
struct StoredRows {
  std::string path;
  std::string array;
  std::uint64_t digest = 0;
  std::span<const std::int64_t> rows;       // by sample
  std::span<const std::int32_t> checksums;  // by sample; empty in a file of an early version
};
// Throws an input error if the file's seal is invalid, or if the file is no longer the one that was opened.
std::unique_ptr<Dataset> make_stored_dataset(LazySet set, StoredRows stored);

}  // namespace tutti
