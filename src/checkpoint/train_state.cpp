#include "tutti/checkpoint/train_state.hpp"

#include <algorithm>
#include <bit>

namespace tutti {

bool is_finite(const NamedArray& array) {
  constexpr std::int32_t kInfinity = 0x7f800000;
  std::int32_t greatest = 0;  // by the bits without sign: several at once
  for (const float value : array.values) {
    greatest = std::max(greatest, std::bit_cast<std::int32_t>(value) & 0x7fffffff);
  }
  return greatest < kInfinity;
}

}  // namespace tutti
