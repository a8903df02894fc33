#pragma once
// Host memory that sums over ranks run on, for every communicator that works there.

#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <source_location>

namespace tutti {

// Zeroed, aligned to 64 bytes.
Buffer allocate_host_memory(std::size_t bytes);

// Throws unless `values` are f32 or i64: what can be added over ranks.
void require_summable(const Tensor& values, std::source_location where = std::source_location::current());
// Likewise unless they are so in host memory.
void require_summable_on_host(const Tensor& values, std::source_location where = std::source_location::current());

}  // namespace tutti
