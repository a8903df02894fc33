#pragma once
// Samples into device memory as one batch: read, scaled, copied. One writer serves one thread at a time, and
// whoever owns the memory says how long a batch lives.

#include "tutti/backend/backend.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti {

class BatchWriter {
 public:
  // `data` and `backend` are borrowed.
  BatchWriter(const Dataset& data, Backend& backend, std::int64_t most_samples);

  // Room for the images and for the labels of that many samples, of at least one.
  Buffer allocate_images(std::int64_t samples) const;
  Buffer allocate_labels(std::int64_t samples) const;

  // The batch of part 0; its tensors are views of the two buffers, and their values are in place on return.
  Batch write(std::span<const std::int64_t> samples, const Buffer& images, const Buffer& labels);

 private:
  const Dataset& data_;
  Backend& backend_;
  std::vector<std::uint8_t> pixels_;
  // Only for a processor with memory of its own.
  std::unique_ptr<Stream> stream_;
  std::vector<float> host_images_;
  std::vector<std::int32_t> host_labels_;
};

}  // namespace tutti
