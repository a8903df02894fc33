#include "image_tables.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 256;

// Row `row` of a table in the host's memory.
template <class T>
T* row_of(const Tensor& table, std::int64_t row) {
  return static_cast<T*>(table.data) + row * table.shape.without_first().elements();
}

}  // namespace

TableLayout::TableLayout(const ImageRecipe& recipe, const Shape& image) {
  const ImagePlan widest = widest_plan(recipe, image);
  rows_ = {recipe.image[1], AxisWeights::most_taps(widest.rows)};
  columns_ = {recipe.image[2], AxisWeights::most_taps(widest.columns)};
}

template <class Place>
void TableLayout::for_each(ImageTables& tables, std::int64_t images, Place place) const {
  place(tables.samples, Shape{images}, ElementType::i32);
  const auto place_axis = [&](AxisTables& axis, const Axis& sizes) {
    place(axis.taps, Shape{images}, ElementType::i32);
    place(axis.first, Shape{images, sizes.outputs}, ElementType::i32);
    place(axis.weights, Shape{images, sizes.most_taps, sizes.outputs}, ElementType::f32);
  };
  place_axis(tables.rows, rows_);
  place_axis(tables.columns, columns_);
}

std::size_t TableLayout::bytes(std::int64_t images) const {
  ImageTables tables;
  std::size_t bytes = 0;
  for_each(tables, images, [&](Tensor&, const Shape& shape, ElementType type) {
    const std::size_t mine = static_cast<std::size_t>(shape.elements()) * bytes_of(type);
    bytes += (mine + kAlignment - 1) / kAlignment * kAlignment;
  });
  return bytes;
}

ImageTables TableLayout::tables(const Buffer& memory, std::int64_t images) const {
  ImageTables tables;
  std::size_t offset = 0;
  for_each(tables, images, [&](Tensor& table, const Shape& shape, ElementType type) {
    table = memory.view(shape, type, offset);
    offset += (table.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  });
  return tables;
}

void TableWriter::write(const ImageTables& tables, std::int64_t row, const Shape& image, const SampleKey& key) {
  const ImagePlan plan = plan_image(recipe_, image, key);
  rows_.plan(plan.rows);
  columns_.plan(plan.columns);
  *row_of<std::int32_t>(tables.samples, row) = static_cast<std::int32_t>(key.sample);
  store(rows_, tables.rows, row);
  store(columns_, tables.columns, row);
}

void TableWriter::store(const AxisWeights& axis, const AxisTables& tables, std::int64_t row) {
  const std::int64_t taps = axis.taps();
  if (taps > tables.weights.shape[1]) {
    throw Error(ErrorSource::internal,
                fmt::format("an axis of {} taps in tables made for {}", taps, tables.weights.shape[1]));
  }
  *row_of<std::int32_t>(tables.taps, row) = static_cast<std::int32_t>(taps);
  std::ranges::transform(axis.first(), row_of<std::int32_t>(tables.first, row),
                         [](std::int64_t first) { return static_cast<std::int32_t>(first); });
  std::copy_n(axis.weights(0), taps * std::ssize(axis.first()), row_of<float>(tables.weights, row));
}

}  // namespace tutti
