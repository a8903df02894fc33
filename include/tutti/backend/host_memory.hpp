#pragma once
// Memory of the host for blocks of numbers.

#include "tutti/backend/tensor.hpp"

#include <cstddef>

namespace tutti {

// Zeroed, and aligned to 64 bytes. Of a large block, only what has been written takes memory.
Buffer allocate_host(std::size_t bytes);

}  // namespace tutti
