#pragma once
// A stretch of a flat block.

#include "tutti/backend/tensor.hpp"

#include <cstdint>

namespace tutti {

// Elements begin .. end - 1 of a flat f32 block.
inline Tensor elements_of(const Tensor& block, std::int64_t begin, std::int64_t end) {
  return {static_cast<float*>(block.data) + begin, Shape{end - begin}, ElementType::f32, block.space};
}

}  // namespace tutti
