#pragma once
// Data sets whose images are read from files while they are used: image files in a folder, and rows of a data file.
// All spans are borrowed from the block of bytes of data_block.cpp.

#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct LazySet {
  DatasetInfo info;
  std::span<const std::int32_t> labels;
  PackedNames names;
  std::uint64_t digest = 0;
};

// A data set whose images are read from files lazily.
class LazyDataset : public Dataset {
 public:
  explicit LazyDataset(LazySet set);
  const DatasetInfo& info() const override { return set_.info; }
  std::string name_of(std::int64_t sample) const override { return set_.names.of(info().index_of(sample)); }
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return set_.digest; }
  std::span<const std::int32_t> labels() const override { return set_.labels; }

 private:
  LazySet set_;
};

// One whose images are encoded: derived classes implement image_file().
class EncodedDataset : public LazyDataset {
 public:
  using LazyDataset::LazyDataset;
  bool is_encoded() const override { return true; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;
  ImageFile image_file(std::int64_t sample, std::vector<std::byte>& buffer) const override = 0;
};

// Throws an input error if all images of the set have one size, and this file has another.
void check_image_shape(const DatasetInfo& info, const ImageFile& file, const Shape& found);

// Image files in a folder, whose names are those of the set.
std::unique_ptr<Dataset> make_image_folder(LazySet set, std::filesystem::path folder, bool applies_exif);

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
