#include "mistakes.hpp"

#include "tutti/base/error.hpp"
#include "tutti/data/png_image.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <tuple>

namespace tutti {
namespace {

constexpr std::int64_t kMostPixels = 160;  // of a picture's side

bool is_more_confident(const Mistake& a, const Mistake& b) {
  return std::tuple(-a.probability, a.probability_of_label, a.sample) <
         std::tuple(-b.probability, b.probability_of_label, b.sample);
}

// The mean of a rectangle of pixels, rounded.
std::uint8_t mean_of(const std::uint8_t* first, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  std::int64_t sum = 0;
  for (std::int64_t y = 0; y < rows; ++y) {
    sum = std::accumulate(first + y * stride, first + y * stride + columns, sum);
  }
  return static_cast<std::uint8_t>((sum + rows * columns / 2) / (rows * columns));
}

}  // namespace

void Mistakes::add(const ChunkScores& scores) {
  for (std::size_t i = 0; i < scores.samples.size(); ++i) {
    const SampleScore& score = scores.samples[i];
    if (score.label == score.predicted) continue;
    const auto label = static_cast<std::size_t>(score.label);
    const auto predicted = static_cast<std::size_t>(score.predicted);
    heap_.push_back({.sample = scores.first + static_cast<std::int64_t>(i),
                     .label = label,
                     .predicted = predicted,
                     .probability = scores.probability(i, predicted),
                     .probability_of_label = scores.probability(i, label)});
    std::ranges::push_heap(heap_, is_more_confident);
    if (heap_.size() <= most_) continue;
    std::ranges::pop_heap(heap_, is_more_confident);
    heap_.pop_back();
  }
}

std::vector<Mistake> Mistakes::sorted() const {
  std::vector<Mistake> mistakes = heap_;
  std::ranges::sort(mistakes, is_more_confident);
  return mistakes;
}

std::vector<std::byte> small_png(const ImageView& image, std::int64_t most) {
  const std::int64_t channels = image.shape[0] == 3 ? 3 : 1;
  const std::int64_t height = image.shape[1];
  const std::int64_t width = image.shape[2];
  const std::int64_t side = std::max<std::int64_t>(1, (std::max(height, width) + most - 1) / most);
  std::vector<std::uint8_t> pixels;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t y = 0; y < height; y += side) {
      for (std::int64_t x = 0; x < width; x += side) {
        const std::uint8_t* const first = image.pixels + (c * height + y) * width + x;
        pixels.push_back(mean_of(first, width, std::min(side, height - y), std::min(side, width - x)));
      }
    }
  }
  return encode_png({pixels.data(), {channels, (height + side - 1) / side, (width + side - 1) / side}});
}

std::vector<std::string> write_pictures(const std::string& folder, const Dataset& data,
                                        const std::vector<Mistake>& mistakes) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) throw Error(ErrorSource::save, fmt::format("cannot make '{}': {}", folder, failure.message()));
  std::vector<std::string> names;
  SampleBatch batch;
  for (const Mistake& mistake : mistakes) {
    data.read(std::array{mistake.sample}, batch);
    names.push_back(fmt::format("{}.png", mistake.sample));
    write_whole(fmt::format("{}/{}", folder, names.back()), small_png(batch.images.front(), kMostPixels));
  }
  return names;
}

}  // namespace tutti
