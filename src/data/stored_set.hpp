#pragma once
// A data set whose images stay in a data file (tutti/data/data_file.hpp) and are read when they are asked for.

#include "tutti/data/dataset.hpp"
#include "tutti/storage/array_file.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace tutti {

// Where the images are: which array of which file, its digest as told there, and its row for every sample and
// that row's checksum. Borrowed.
struct StoredRows {
  std::string path;
  std::string array;
  std::uint64_t digest = 0;
  std::span<const std::int64_t> rows;
  std::span<const std::int32_t> checksums;  // empty in a file of an early version, whose rows are not verified
};

class StoredSet : public Dataset {
 public:
  // `labels` are borrowed, too. Throws io and input errors of a file that is not what it was.
  StoredSet(DatasetInfo info, StoredRows stored, std::span<const std::int32_t> labels, std::uint64_t digest);

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return digest_; }

 private:
  // Throws an input error unless the image that was read for the sample has its checksum.
  void verify(std::size_t sample, std::span<const std::uint8_t> image) const;

  DatasetInfo info_;
  StoredRows stored_;
  std::span<const std::int32_t> labels_;
  std::uint64_t digest_;
  ArrayFile file_;
};

}  // namespace tutti
