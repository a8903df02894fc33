#pragma once
// Images resampled to network inputs, for PixelWriter: loops of 8 rows and columns at a time.

#include "image_geometry.hpp"
#include "pixel_writer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tutti::resampling {

constexpr std::int64_t kGroup = AxisWeights::kGroup;
static_assert(kGroup == 4);

// Output rows are computed kLanes at a time. Their input rows are summed first, which is exact in any order; then
// columns are, where the lanes of a register are the rows. So there are no gathers.
constexpr std::size_t kLanes = 8;
using Lanes [[gnu::vector_size(sizeof(float) * kLanes)]] = float;
using Half [[gnu::vector_size(sizeof(float) * 4)]] = float;
using Bytes [[gnu::vector_size(16)]] = std::uint8_t;
using Words [[gnu::vector_size(16)]] = std::uint16_t;
using Integers [[gnu::vector_size(16)]] = std::int32_t;
using Longs [[gnu::vector_size(16)]] = std::uint64_t;
using Tile = std::array<std::array<Half, 2>, kLanes>;

struct Output {
  std::ptrdiff_t channel = 0;  // bytes from the pixel's first
  Normal normal;
  float* values = nullptr;
};

struct Resampling {
  const AxisWeights& rows;
  const AxisWeights& columns;
  RegionPixels pixels;   // columns go up by by_column bytes, at least 0
  std::size_t elements;  // bytes of a row
  std::span<const Output> outputs;
  float* sums;  // kLanes rows of elements, by element
};

// Writes a tile of kLanes x kLanes with rows and columns exchanged.
[[gnu::always_inline]] inline void write_transposed(const Tile& tile, float* target, std::size_t row_length) {
  for (std::size_t row = 0; row < kLanes; row += 4) {
    for (std::size_t half = 0; half < 2; ++half) {
      const Half a = __builtin_shufflevector(tile[row][half], tile[row + 1][half], 0, 4, 1, 5);
      const Half b = __builtin_shufflevector(tile[row + 2][half], tile[row + 3][half], 0, 4, 1, 5);
      const Half c = __builtin_shufflevector(tile[row][half], tile[row + 1][half], 2, 6, 3, 7);
      const Half d = __builtin_shufflevector(tile[row + 2][half], tile[row + 3][half], 2, 6, 3, 7);
      const Half columns[] = {__builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
                              __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
      float* const to = target + half * 4 * row_length + row;
      for (std::size_t i = 0; i < 4; ++i) std::memcpy(to + i * row_length, &columns[i], sizeof(Half));
    }
  }
}

// Sums of the input rows of output row y, for `count` elements from `at` on. Compilers convert bytes one by one, hence
// the exchanges with zeros, in two steps.
[[gnu::always_inline]] inline void sum_rows(const Resampling& from, std::size_t y, std::size_t at, std::size_t count,
                                            std::array<Half, 2>& sums) {
  const RegionPixels& pixels = from.pixels;
  const std::uint8_t* row = pixels.first + (from.rows.first()[y] - pixels.region.rows.begin) * pixels.by_row +
                            static_cast<std::ptrdiff_t>(at);
  const float* weight = from.rows.weights(0) + y;
  std::array<Half, 2> all{};
  for (std::int64_t tap = 0; tap < from.rows.taps(); ++tap, row += pixels.by_row, weight += from.rows.first().size()) {
    std::uint64_t bytes = 0;
    if (count == kLanes) {
      std::memcpy(&bytes, row, kLanes);
    } else {
      std::memcpy(&bytes, row, count);
    }
    const auto words = std::bit_cast<Words>(__builtin_shufflevector(std::bit_cast<Bytes>(Longs{bytes}), Bytes{}, 0, 16,
                                                                    1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
    const auto low = std::bit_cast<Integers>(__builtin_shufflevector(words, Words{}, 0, 8, 1, 9, 2, 10, 3, 11));
    const auto high = std::bit_cast<Integers>(__builtin_shufflevector(words, Words{}, 4, 12, 5, 13, 6, 14, 7, 15));
    all[0] += *weight * __builtin_convertvector(low, Half);
    all[1] += *weight * __builtin_convertvector(high, Half);
  }
  sums = all;
}

// Output column x of kLanes rows: four taps at a time, then one by one. The order decides the bits.
[[gnu::always_inline]] inline void sum_columns(const Resampling& from, const Output& output, std::size_t x,
                                               std::array<Half, 2>& sums) {
  const AxisWeights& columns = from.columns;
  const std::ptrdiff_t step = from.pixels.by_column;
  const auto* inputs = reinterpret_cast<const Lanes*>(from.sums) + output.channel +
                       (columns.first()[x] - from.pixels.region.columns.begin) * step;
  Lanes all{};
  std::int64_t tap = 0;
  for (; tap + kGroup <= columns.taps(); tap += kGroup, inputs += kGroup * step) {
    all += columns.weights(tap)[x] * inputs[0] + columns.weights(tap + 1)[x] * inputs[step] +
           columns.weights(tap + 2)[x] * inputs[2 * step] + columns.weights(tap + 3)[x] * inputs[3 * step];
  }
  for (; tap < columns.taps(); ++tap, inputs += step) all += columns.weights(tap)[x] * inputs[0];
  all = (all / 255.0f - output.normal.mean) / output.normal.deviation;
  std::memcpy(sums.data(), &all, sizeof(all));
}

// The last rows and columns are computed more than once where kLanes does not divide their number.
[[gnu::always_inline]] inline void resample_all(const Resampling& from) {
  const std::size_t height = from.rows.first().size();
  const std::size_t width = from.columns.first().size();
  const std::size_t count = std::min(from.elements, kLanes);
  Tile tile;
  for (std::size_t y = 0; y < height; y += kLanes) {
    for (std::size_t x = 0; x < from.elements; x += kLanes) {
      const std::size_t at = std::min(x, from.elements - count);
      for (std::size_t i = 0; i < kLanes; ++i) sum_rows(from, std::min(y + i, height - 1), at, count, tile[i]);
      write_transposed(tile, from.sums + at * kLanes, kLanes);
    }
    for (const Output& output : from.outputs) {
      for (std::size_t x = 0; x < width; x += kLanes) {
        for (std::size_t i = 0; i < kLanes; ++i) sum_columns(from, output, std::min(x + i, width - 1), tile[i]);
        float* const target = output.values + y * width + x;
        if (y + kLanes <= height && x + kLanes <= width) {
          write_transposed(tile, target, width);
        } else {
          std::array<float, kLanes * kLanes> edge;
          write_transposed(tile, edge.data(), kLanes);
          for (std::size_t i = 0; i < std::min(kLanes, height - y); ++i) {
            std::copy_n(edge.data() + i * kLanes, std::min(kLanes, width - x), target + i * width);
          }
        }
      }
    }
  }
}

// The same for the widest registers of this processor. No multiply-adds are contracted, so the bits are the same.
void resample(const Resampling& from);

}  // namespace tutti::resampling
