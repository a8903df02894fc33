#include "pixel_writer.hpp"

#include "tutti/base/error.hpp"

#include "resampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace tutti {
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
  using namespace resampling;
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
  // A pixel's channels are neighbors, or all in the same bytes: one pass over the rows. Otherwise, one per channel.
  if (ordered.by_channel < ordered.by_column) return resampling::resample(from);
  for (Output& output : outputs) {
    from.outputs = {&output, 1};
    from.pixels.first = ordered.first + std::exchange(output.channel, 0);
    resampling::resample(from);
  }
}

}  // namespace tutti
