#pragma once
// An activation as loops see it that take any number of channels: in blocks of as many as a register of AVX-512 holds,
// the last of which may be held in part.

#include <cstdint>

namespace tutti::cpu {

inline constexpr int kImageLanes = 16;
inline constexpr std::int64_t kPanel = 2 * kImageLanes;  // columns of a product

// One image; strides count elements.
template <class T>
struct LaneImage {
  T* values;
  std::int64_t block, row, column;
  std::int64_t rows, columns;
  std::int64_t channels;  // stored ones
};

}  // namespace tutti::cpu
