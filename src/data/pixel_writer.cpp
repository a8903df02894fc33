#include "pixel_writer.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

namespace tutti {
namespace {

constexpr std::int64_t kGroup = AxisWeights::kGroup;
static_assert(kGroup == 4);

struct Plane {
  const std::uint8_t* pixels;
  std::int64_t width;  // row stride
};

// The input pixels of one channel, and the output values.
struct Values {
  const AxisWeights& rows;
  const AxisWeights& columns;
  Plane plane;
  std::vector<float>& row;  // one output row before its columns are resampled
  std::span<float> all;
};

// The weighted sum of the input rows of output row y; `plane` starts at the first of them.
[[gnu::always_inline]] inline void add_rows(const AxisWeights& rows, std::int64_t y, const Plane& plane,
                                            std::span<float> sums) {
  std::ranges::fill(sums, 0.0f);
  const std::uint8_t* row = plane.pixels;
  std::int64_t tap = 0;
  for (; tap + kGroup <= rows.taps(); tap += kGroup, row += kGroup * plane.width) {
    const float w0 = rows.weights(tap)[y];
    const float w1 = rows.weights(tap + 1)[y];
    const float w2 = rows.weights(tap + 2)[y];
    const float w3 = rows.weights(tap + 3)[y];
    const std::uint8_t* const row1 = row + plane.width;
    const std::uint8_t* const row2 = row1 + plane.width;
    const std::uint8_t* const row3 = row2 + plane.width;
    for (std::size_t x = 0; x < sums.size(); ++x) {
      sums[x] += w0 * static_cast<float>(row[x]) + w1 * static_cast<float>(row1[x]) + w2 * static_cast<float>(row2[x]) +
                 w3 * static_cast<float>(row3[x]);
    }
  }
  for (; tap < rows.taps(); ++tap, row += plane.width) {
    const float weight = rows.weights(tap)[y];
    for (std::size_t x = 0; x < sums.size(); ++x) sums[x] += weight * static_cast<float>(row[x]);
  }
}

[[gnu::always_inline]] inline void add_columns(const AxisWeights& columns, const float* row, std::span<float> sums) {
  std::ranges::fill(sums, 0.0f);
  const std::int64_t* const first = columns.first().data();
  std::int64_t tap = 0;
  for (; tap + kGroup <= columns.taps(); tap += kGroup) {
    const float* const w0 = columns.weights(tap);
    const float* const w1 = columns.weights(tap + 1);
    const float* const w2 = columns.weights(tap + 2);
    const float* const w3 = columns.weights(tap + 3);
    for (std::size_t x = 0; x < sums.size(); ++x) {
      const float* const from = row + first[x] + tap;
      sums[x] += w0[x] * from[0] + w1[x] * from[1] + w2[x] * from[2] + w3[x] * from[3];
    }
  }
  for (; tap < columns.taps(); ++tap) {
    const float* const weights = columns.weights(tap);
    for (std::size_t x = 0; x < sums.size(); ++x) sums[x] += weights[x] * row[first[x] + tap];
  }
}

[[gnu::always_inline]] inline void gather(const Values& values) {
  const auto& [rows, columns, plane, row, all] = values;
  const IndexRange used = columns.used();
  const std::span needed(row.data() + used.begin, static_cast<std::size_t>(used.size()));
  const std::size_t width = columns.first().size();
  for (std::size_t y = 0; y < rows.first().size(); ++y) {
    const std::uint8_t* const first = plane.pixels + rows.first()[y] * plane.width + used.begin;
    add_rows(rows, static_cast<std::int64_t>(y), {first, plane.width}, needed);
    add_columns(columns, row.data(), all.subspan(y * width, width));
  }
}

// The same bits with wide registers: no multiply-adds are contracted.
[[gnu::target("avx512f,avx512dq,avx512vl")]] void gather_widely(const Values& values) { gather(values); }

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

void PixelWriter::write(const ImageView& image, const ImagePlan& plan, std::span<float> values) {
  if (image.shape[0] != shape_[0] || static_cast<std::int64_t>(values.size()) != shape_.elements()) {
    throw Error(ErrorSource::internal, fmt::format("an image of {} into {} values, expected {}", image.shape.text(),
                                                   values.size(), shape_.text()));
  }
  rows_.plan(plan.rows);
  columns_.plan(plan.columns);
  const bool copies = rows_.copies() && columns_.copies();
  const std::uint8_t* pixels = image.pixels;
  const auto plane = static_cast<std::size_t>(shape_[1] * shape_[2]);
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    const Channel& channel = channels_[c];
    const auto output = values.subspan(c * plane, plane);
    if (copies) {
      copy(channel, image, pixels, output);
    } else {
      resample(channel, image, pixels, output);
    }
    pixels += image.shape[1] * image.shape[2];
  }
}

void PixelWriter::copy(const Channel& channel, const ImageView& image, const std::uint8_t* pixels,
                       std::span<float> values) const {
  const float* const shown = columns_.weights(0);
  const std::int64_t* const from = columns_.first().data();
  const std::size_t width = columns_.first().size();
  const std::int64_t stride = image.shape[2];
  float* output = values.data();
  for (std::size_t y = 0; y < rows_.first().size(); ++y, output += width) {
    const std::uint8_t* const row = pixels + rows_.first()[y] * stride;
    const bool row_shown = rows_.weights(0)[y] != 0;
    for (std::size_t x = 0; x < width; ++x) {
      output[x] = channel.values[row_shown && shown[x] != 0 ? row[from[x]] : 0];
    }
  }
}

void PixelWriter::resample(const Channel& channel, const ImageView& image, const std::uint8_t* pixels,
                           std::span<float> values) {
  row_.resize(static_cast<std::size_t>(image.shape[2]));
  (has_avx512() ? gather_widely : gather)({rows_, columns_, {pixels, image.shape[2]}, row_, values});
  const Normal normal = channel.normal;  // a copy, which stores to values cannot alias
  for (float& value : values) value = normal.value(value);
}

}  // namespace tutti
