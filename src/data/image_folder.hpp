#pragma once
// Image files as a data set: every sample is read and decoded when it is asked for.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <span>
#include <string>

namespace tutti {

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

}  // namespace tutti
