#pragma once
// What a processor that holds the data set is told of a batch in place of pixels: which samples, and how each is
// resampled. All tables of a batch lie in one block of memory, so that one copy carries them.

#include "tutti/backend/image_store.hpp"
#include "tutti/data/image_recipe.hpp"

#include "augmentation.hpp"
#include "axis_weights.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

struct ImageTables {
  Tensor samples;  // i32 [images]
  AxisTables rows;
  AxisTables columns;
};

// Where they lie, for batches of up to so many images of one size under one recipe.
class TableLayout {
 public:
  // `image` is the data's C, H, W.
  TableLayout(const ImageRecipe& recipe, const Shape& image);
  std::size_t bytes(std::int64_t images) const;
  ImageTables tables(const Buffer& memory, std::int64_t images) const;

 private:
  struct Axis {
    std::int64_t outputs = 0;
    std::int64_t most_taps = 1;
  };
  // Calls `place(tensor, shape, type)` for each table in turn.
  template <class Place>
  void for_each(ImageTables& tables, std::int64_t images, Place place) const;

  Axis rows_;
  Axis columns_;
};

// One thread's way of filling them.
class TableWriter {
 public:
  explicit TableWriter(const ImageRecipe& recipe) : recipe_(recipe) {}
  // Row `row` of tables in the host's memory. `image` is the sample's shape.
  void write(const ImageTables& tables, std::int64_t row, const Shape& image, const SampleKey& key);

 private:
  static void store(const AxisWeights& axis, const AxisTables& tables, std::int64_t row);

  ImageRecipe recipe_;
  AxisWeights rows_;
  AxisWeights columns_;
};

}  // namespace tutti
