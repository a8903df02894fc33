#pragma once
// Host memory as the seam promises it: zeroed and aligned.

#include "tutti/backend/tensor.hpp"

namespace tutti::cpu {

Buffer allocate_host(std::size_t bytes);

}  // namespace tutti::cpu
