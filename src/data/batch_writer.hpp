#pragma once
// Samples into the host's memory as rows of a batch: read and made into what the recipe says; or, for a processor that
// makes images itself, told of in tables. One writer serves one thread at a time.

#include "tutti/data/batch_loader.hpp"
#include "tutti/data/dataset.hpp"

#include "image_tables.hpp"
#include "image_writer.hpp"

#include <cstdint>
#include <span>

namespace tutti {

// The recipe with the data's own image shape where it names none.
ImageRecipe completed(ImageRecipe recipe, const DatasetInfo& data);

// Rows first_row .. of a batch.
struct BatchRows {
  std::span<const std::int64_t> samples;
  std::int64_t epoch = 0;
  std::int64_t first_row = 0;
};

class BatchWriter {
 public:
  // `data` is borrowed; the recipe is complete.
  BatchWriter(const Dataset& data, const ImageRecipe& recipe);

  // Both tensors in the host's memory.
  void write(const BatchRows& rows, const Tensor& images, const Tensor& labels);
  void write(const BatchRows& rows, const ImageTables& tables);

 private:
  const Dataset& data_;
  ImageRecipe recipe_;
  ImageWriter images_;
  TableWriter tables_;
  SampleBatch samples_;
};

}  // namespace tutti
