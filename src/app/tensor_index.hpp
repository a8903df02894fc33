#pragma once
// The position of an element in a tensor, as commands print it.

#include "tutti/base/shape.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// "[3, 0, 1, 1]".
inline std::string index_text(const Shape& shape, std::int64_t element) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = element % shape[axis];
    element /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace tutti
