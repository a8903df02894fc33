#pragma once
// Labelled images, addressed by sample number. Pixels are bytes in C, H, W order; labels count from 0 to
// classes - 1.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct DatasetInfo {
  std::string name;
  Shape image;  // C, H, W
  int classes = 0;
  std::vector<std::string> class_names;  // empty where the source names none
  std::int64_t samples = 0;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const DatasetInfo& info() const = 0;
  // The images and labels of the given samples, one after another. Thread-safe.
  virtual void read(std::span<const std::int64_t> samples, std::span<std::uint8_t> images,
                    std::span<std::int32_t> labels) const = 0;
  // digest("images") + digest("labels") of the whole set: equal data give equal digests from any source.
  virtual std::uint64_t digest() const = 0;
};

// A data set held in this process's memory.
class MemoryDataset : public Dataset {
 public:
  // Throws an input error naming the set and the first sample whose label is out of range.
  MemoryDataset(DatasetInfo info, std::vector<std::uint8_t> images, std::vector<std::int32_t> labels);

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, std::span<std::uint8_t> images,
            std::span<std::int32_t> labels) const override;
  std::uint64_t digest() const override;

 private:
  DatasetInfo info_;
  std::vector<std::uint8_t> images_;
  std::vector<std::int32_t> labels_;
};

struct DataPair {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;  // null where there is none
};

// Opens what --data names: "glyphs", "synthetic:NxCxHxW:classes", a folder of idx files or of CIFAR binary
// batches (raw or .gz), or a bare NAME looked up as ./NAME, ./data/NAME and $TUTTI_DATA/NAME. A non-empty
// `test` names a folder of its own for the test set. Throws input or io errors that name the file, the offset
// and the reason.
DataPair open_data(const std::string& where, const std::string& test);

}  // namespace tutti
