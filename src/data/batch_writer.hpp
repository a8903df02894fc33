#pragma once
// Samples into device memory as rows of a batch: read, made into what the recipe says, copied. One writer serves one
// thread at a time.

#include "tutti/backend/backend.hpp"
#include "tutti/data/batch_loader.hpp"
#include "tutti/data/dataset.hpp"

#include "image_writer.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti {

// The recipe with the data's own image shape where it names none.
ImageRecipe completed(ImageRecipe recipe, const DatasetInfo& data);

// Device memory for one part's batches of up to `most_samples`.
class BatchMemory {
 public:
  BatchMemory(Backend& backend, const Shape& image, std::int64_t most_samples);
  // Borrowed. Of part 0 and position 0.
  Batch batch_of(std::int64_t samples) const;

 private:
  Shape image_;
  Buffer images_;
  Buffer labels_;
};

class BatchWriter {
 public:
  // `data` and `backend` are borrowed; the recipe is complete.
  BatchWriter(const Dataset& data, Backend& backend, const ImageRecipe& recipe);

  // Into rows first_row .. of `batch`; the values are in place on return.
  struct Rows {
    std::span<const std::int64_t> samples;
    std::int64_t epoch = 0;
    std::int64_t first_row = 0;
  };
  void write(const Rows& rows, const Batch& batch);

 private:
  void write_on_host(const Rows& rows, std::span<float> images, std::span<std::int32_t> labels);

  const Dataset& data_;
  Backend& backend_;
  ImageRecipe recipe_;
  ImageWriter writer_;
  SampleBatch samples_;
  // Only for a processor with memory of its own.
  std::unique_ptr<Stream> stream_;
  std::vector<float> host_images_;
  std::vector<std::int32_t> host_labels_;
};

}  // namespace tutti
