#pragma once
// Words for the tensors of a training state, for commands that tell of them.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// Where an element lies: "[3, 0, 1, 1]".
std::string place_text(const Shape& shape, std::int64_t element);

}  // namespace tutti
