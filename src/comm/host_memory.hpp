#pragma once
// Host memory that sums over ranks run on, for every communicator that works there.

#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <source_location>

namespace tutti {

// Zeroed, aligned to 64 bytes.
Buffer allocate_host_memory(std::size_t bytes);

// Throws unless `values` are f32 or i64 in this memory: what can be added over ranks there.
void require_summable(const Tensor& values, MemorySpace space,
                      std::source_location where = std::source_location::current());

}  // namespace tutti
