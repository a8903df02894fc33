#include "backend/cuda/format.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tutti::cuda {
namespace {

std::int64_t quotient_up(std::int64_t dividend, std::int64_t divisor) { return (dividend + divisor - 1) / divisor; }

RowGrid share_rows_of(const ImageLayout& layout, int packs, int width, const RowLimits& limits) {
  RowGrid grid;
  grid.rows = layout.rows();
  grid.packs = packs;
  grid.width = width;
  grid.columns = static_cast<int>(quotient_up(packs, width));
  grid.threads = limits.threads;
  grid.height = limits.threads / width;
  const std::int64_t step = std::int64_t{grid.height} * limits.rows;
  const std::int64_t wanted = std::max<std::int64_t>(1, limits.blocks / grid.columns);
  grid.chunk_rows = quotient_up(quotient_up(grid.rows, wanted), step) * step;
  grid.chunks = static_cast<int>(quotient_up(grid.rows, grid.chunk_rows));
  return grid;
}

ImageLayout dense_layout(const Shape& shape, ElementType type) {
  const bool image = shape.ndim() == 4;
  if (!image && shape.ndim() != 2) {
    throw Error(ErrorSource::internal, fmt::format("an activation of {} is neither images nor vectors", shape.text()));
  }
  return {.samples = shape[0],
          .channels = shape[1],
          .height = image ? shape[2] : 1,
          .width = image ? shape[3] : 1,
          .padded_channels = padded_channels(shape[1], type)};
}

}  // namespace

std::int64_t padded_channels(std::int64_t channels, ElementType type) {
  const auto pack = static_cast<std::int64_t>(kPackBytes / bytes_of(type));
  return (channels + pack - 1) / pack * pack;
}

std::int64_t packs_of(const ImageLayout& layout, ElementType type) {
  return layout.padded_channels * static_cast<std::int64_t>(bytes_of(type)) / static_cast<std::int64_t>(kPackBytes);
}

ActivationSpec activation_of(const Shape& shape, ElementType type) {
  const std::int64_t values = dense_layout(shape, type).values();
  return {shape, std::make_shared<CudaFormat>(type, false), static_cast<std::size_t>(values) * bytes_of(type)};
}

ActivationSpec output_of(const LayerSpec& spec, const ActivationSpec& input) {
  return activation_of(output_shape(spec, input.shape.without_first()).batch_of(input.shape[0]),
                       format_of(input).type());
}

ActivationSpec plain_activation_of(const Shape& shape) {
  return {shape, std::make_shared<CudaFormat>(ElementType::f32, true),
          static_cast<std::size_t>(shape.elements()) * sizeof(float)};
}

const CudaFormat& format_of(const ActivationSpec& activation) {
  const auto* const format = dynamic_cast<const CudaFormat*>(activation.format.get());
  if (format == nullptr) {
    throw Error(ErrorSource::internal, "an activation of another backend was given to the cuda backend");
  }
  return *format;
}

bool is_plain(const ActivationSpec& activation) { return format_of(activation).is_plain(); }

ImageLayout layout_of(const ActivationSpec& activation) {
  if (is_plain(activation)) {
    throw Error(ErrorSource::internal,
                fmt::format("a plain activation of {} was given to a layer that needs the native layout",
                            activation.shape.text()));
  }
  return dense_layout(activation.shape, format_of(activation).type());
}

RowGrid share_rows(const ImageLayout& layout, ElementType type, const RowLimits& limits) {
  const auto packs = static_cast<int>(packs_of(layout, type));
  const auto columns = static_cast<int>(quotient_up(packs, limits.width));
  return share_rows_of(layout, packs, static_cast<int>(quotient_up(packs, columns)), limits);
}

RowGrid share_rows_for_sums(const ImageLayout& layout, ElementType type, const RowLimits& limits) {
  const auto packs = static_cast<int>(packs_of(layout, type));
  const auto widest = static_cast<unsigned>(std::min(packs, limits.width));
  return share_rows_of(layout, packs, static_cast<int>(std::bit_ceil(widest)), limits);
}

}  // namespace tutti::cuda
