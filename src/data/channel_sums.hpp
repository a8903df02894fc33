#pragma once
// Mean and deviation of each channel over many images, by exact integer sums: the same whatever the order and the
// machine.

#include "tutti/data/dataset.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

class ChannelSums {
 public:
  // Whole images of C planes of `plane` pixels each.
  ChannelSums(std::int64_t channels, std::int64_t plane);

  void add(std::span<const std::uint8_t> images);
  void add(const ChannelSums& others);  // of images of the same shape
  ChannelStatistics statistics() const;

 private:
  std::size_t plane_;
  std::uint64_t pixels_ = 0;  // of each channel
  std::vector<std::uint64_t> sums_;
  std::vector<std::uint64_t> square_sums_;
};

// Of whole images of this shape, one after another.
ChannelStatistics statistics_of(std::span<const std::uint8_t> images, const Shape& image);

}  // namespace tutti
