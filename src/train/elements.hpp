#pragma once
// A stretch of a flat block.

#include "tutti/backend/tensor.hpp"
#include "tutti/data/part_plan.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

// These elements of a flat block.
inline Tensor elements_of(const Tensor& block, IndexRange range) {
  auto* const first =
      static_cast<std::byte*>(block.data) + range.begin * static_cast<std::int64_t>(bytes_of(block.type));
  return {first, Shape{range.size()}, block.type, block.space};
}

}  // namespace tutti
