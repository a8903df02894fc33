#include "channel_sums.hpp"

#include <cmath>

namespace tutti {

ChannelSums::ChannelSums(std::int64_t channels, std::int64_t plane)
    : plane_(static_cast<std::size_t>(plane)),
      sums_(static_cast<std::size_t>(channels)),
      square_sums_(static_cast<std::size_t>(channels)) {}

void ChannelSums::add(std::span<const std::uint8_t> images) {
  while (!images.empty()) {
    for (std::size_t channel = 0; channel < sums_.size(); ++channel) {
      std::uint64_t sum = 0;
      std::uint64_t squares = 0;
      for (const std::uint32_t pixel : images.first(plane_)) {
        sum += pixel;
        squares += pixel * pixel;
      }
      sums_[channel] += sum;
      square_sums_[channel] += squares;
      images = images.subspan(plane_);
    }
    pixels_ += plane_;
  }
}

void ChannelSums::add(const ChannelSums& others) {
  for (std::size_t channel = 0; channel < sums_.size(); ++channel) {
    sums_[channel] += others.sums_[channel];
    square_sums_[channel] += others.square_sums_[channel];
  }
  pixels_ += others.pixels_;
}

ChannelStatistics ChannelSums::statistics() const {
  using Wide = unsigned __int128;
  ChannelStatistics result;
  const double scale = 255.0 * static_cast<double>(pixels_);
  for (std::size_t channel = 0; channel < sums_.size() && pixels_ > 0; ++channel) {
    const Wide spread = Wide{pixels_} * square_sums_[channel] - Wide{sums_[channel]} * sums_[channel];
    result.mean.push_back(static_cast<double>(sums_[channel]) / scale);
    result.deviation.push_back(std::sqrt(static_cast<double>(spread)) / scale);
  }
  return result;
}

ChannelStatistics statistics_of(std::span<const std::uint8_t> images, const Shape& image) {
  ChannelSums sums(image[0], image[1] * image[2]);
  sums.add(images);
  return sums.statistics();
}

}  // namespace tutti
