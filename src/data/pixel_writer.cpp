#include "pixel_writer.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kGroup = AxisWeights::kGroup;
static_assert(kGroup == 4);

// Output rows are computed kLanes at a time. Their input rows are summed first, which is exact in any order; then
// columns are, where the lanes of a register are the rows. So there are no gathers.
constexpr std::size_t kLanes = 8;
using Lanes [[gnu::vector_size(sizeof(float) * kLanes)]] = float;
using Half [[gnu::vector_size(sizeof(float) * 4)]] = float;
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
      Half a = tile[row][half];
      Half b = tile[row + 1][half];
      Half c = tile[row + 2][half];
      Half d = tile[row + 3][half];
      _MM_TRANSPOSE4_PS(a, b, c, d);
      float* const to = target + half * 4 * row_length + row;
      _mm_storeu_ps(to, a);
      _mm_storeu_ps(to + row_length, b);
      _mm_storeu_ps(to + 2 * row_length, c);
      _mm_storeu_ps(to + 3 * row_length, d);
    }
  }
}

// Sums of the input rows of output row y, for `count` elements from `at` on. Compilers convert bytes one by one, hence
// the instructions.
[[gnu::always_inline]] inline void sum_rows(const Resampling& from, std::size_t y, std::size_t at, std::size_t count,
                                            std::array<Half, 2>& sums) {
  const RegionPixels& pixels = from.pixels;
  const std::uint8_t* row = pixels.first + (from.rows.first()[y] - pixels.region.rows.begin) * pixels.by_row +
                            static_cast<std::ptrdiff_t>(at);
  const float* weight = from.rows.weights(0) + y;
  const __m128i none = _mm_setzero_si128();
  std::array<Half, 2> all{};
  for (std::int64_t tap = 0; tap < from.rows.taps(); ++tap, row += pixels.by_row, weight += from.rows.first().size()) {
    long long bytes = 0;
    if (count == kLanes) {
      std::memcpy(&bytes, row, kLanes);
    } else {
      std::memcpy(&bytes, row, count);
    }
    const __m128i words = _mm_unpacklo_epi8(_mm_cvtsi64_si128(bytes), none);
    all[0] += *weight * static_cast<Half>(_mm_cvtepi32_ps(_mm_unpacklo_epi16(words, none)));
    all[1] += *weight * static_cast<Half>(_mm_cvtepi32_ps(_mm_unpackhi_epi16(words, none)));
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

// The same bits with wide registers: no multiply-adds are contracted.
[[gnu::target("avx2")]] void resample_avx2(const Resampling& from) { resample_all(from); }
void resample_portably(const Resampling& from) { resample_all(from); }

}  // namespace

PixelWriter::PixelWriter(const ImageRecipe& recipe)
    : shape_(recipe.image), channels_(static_cast<std::size_t>(recipe.image[0])) {
  const auto& [mean, deviation] = recipe.statistics;
  if (mean.size() != deviation.size() || (!mean.empty() && mean.size() != channels_.size())) {
    throw Error(ErrorSource::internal, fmt::format("{} means and {} deviations for images of {}", mean.size(),
                                                   deviation.size(), shape_.text()));
  }
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    Channel& channel = channels_[c];
    if (!mean.empty()) channel.normal.mean = static_cast<float>(mean[c]);
    if (!mean.empty()) channel.normal.deviation = static_cast<float>(deviation[c]);
    for (std::size_t pixel = 0; pixel < channel.values.size(); ++pixel) {
      channel.values[pixel] = channel.normal.value(static_cast<float>(pixel));
    }
  }
}

ImageRegion PixelWriter::region_of(const ImagePlan& plan) {
  rows_.plan(plan.rows);
  columns_.plan(plan.columns);
  return {rows_.used(), columns_.used(), plan.rows.eighths};
}

void PixelWriter::write(const ImageView& image, const ImagePlan& plan, std::span<float> values) {
  if (image.shape[0] != shape_[0]) {
    throw Error(ErrorSource::internal,
                fmt::format("an image of {} for inputs of {}", image.shape.text(), shape_.text()));
  }
  const ImageRegion used = region_of(plan);
  const std::int64_t width = image.shape[2];
  write({.first = image.pixels + used.rows.begin * width + used.columns.begin,
         .by_channel = image.shape[1] * width,
         .by_row = width,
         .by_column = 1,
         .region = used},
        plan, values);
}

void PixelWriter::write(const RegionPixels& pixels, const ImagePlan& plan, std::span<float> values) {
  if (static_cast<std::int64_t>(values.size()) != shape_.elements()) {
    throw Error(ErrorSource::internal, fmt::format("{} values for inputs of {}", values.size(), shape_.text()));
  }
  region_of(plan);
  if (!rows_.copies() || !columns_.copies()) return resample(pixels, values);
  const auto plane = static_cast<std::size_t>(shape_[1] * shape_[2]);
  RegionPixels channel = pixels;
  for (std::size_t c = 0; c < channels_.size(); ++c, channel.first += pixels.by_channel) {
    copy(channels_[c], channel, values.subspan(c * plane, plane));
  }
}

void PixelWriter::copy(const Channel& channel, const RegionPixels& pixels, std::span<float> values) const {
  const float* const shown = columns_.weights(0);
  const std::int64_t* const from = columns_.first().data();
  const std::size_t width = columns_.first().size();
  float* output = values.data();
  for (std::size_t y = 0; y < rows_.first().size(); ++y, output += width) {
    const std::uint8_t* const row = pixels.first + (rows_.first()[y] - pixels.region.rows.begin) * pixels.by_row;
    const bool row_shown = rows_.weights(0)[y] != 0;
    for (std::size_t x = 0; x < width; ++x) {
      const std::ptrdiff_t column = from[x] - pixels.region.columns.begin;
      output[x] = channel.values[row_shown && shown[x] != 0 ? row[column * pixels.by_column] : 0];
    }
  }
}

void PixelWriter::resample(const RegionPixels& pixels, std::span<float> values) {
  const auto channels = static_cast<std::ptrdiff_t>(channels_.size());
  const std::int64_t width = pixels.region.columns.size();
  RegionPixels ordered = pixels;
  // Rows are read from left to right. Those of a file that is stored on its side are not there as such.
  if (pixels.by_column != 1 && pixels.by_column != channels) {
    const std::ptrdiff_t stored = pixels.by_channel == 0 ? 1 : channels;
    upright_.resize(static_cast<std::size_t>(pixels.region.rows.size() * width * stored));
    std::uint8_t* target = upright_.data();
    for (std::int64_t y = 0; y < pixels.region.rows.size(); ++y) {
      for (std::int64_t x = 0; x < width; ++x) {
        const std::uint8_t* const pixel = pixels.first + y * pixels.by_row + x * pixels.by_column;
        for (std::ptrdiff_t c = 0; c < stored; ++c) *target++ = pixel[c * pixels.by_channel];
      }
    }
    ordered = {.first = upright_.data(),
               .by_channel = pixels.by_channel == 0 ? 0 : 1,
               .by_row = width * stored,
               .by_column = stored,
               .region = pixels.region};
  }
  const auto elements = static_cast<std::size_t>(width * ordered.by_column);
  const auto plane = static_cast<std::size_t>(shape_[1] * shape_[2]);
  std::vector<Output> outputs;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    outputs.push_back({.channel = static_cast<std::ptrdiff_t>(c) * ordered.by_channel,
                       .normal = channels_[c].normal,
                       .values = values.data() + c * plane});
  }
  sums_.resize(std::max(sums_.size(), kLanes * std::max(elements, kLanes) + kLanes));
  void* aligned = sums_.data();
  std::size_t room = sums_.size() * sizeof(float);
  Resampling from{.rows = rows_,
                  .columns = columns_,
                  .pixels = ordered,
                  .elements = elements,
                  .outputs = outputs,
                  .sums = static_cast<float*>(std::align(sizeof(Lanes), sizeof(Lanes), aligned, room))};
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  const auto run = has_avx2 ? resample_avx2 : resample_portably;
  // A pixel's channels are neighbors, or all in the same bytes: one pass over the rows. Otherwise, one per channel.
  if (ordered.by_channel < ordered.by_column) return run(from);
  for (Output& output : outputs) {
    from.outputs = {&output, 1};
    from.pixels.first = ordered.first + std::exchange(output.channel, 0);
    run(from);
  }
}

}  // namespace tutti
