#pragma once
// Digests of tensors in host memory.

#include "tutti/backend/backend.hpp"

#include <span>

namespace tutti::cpu {

void add_digests(std::span<const DigestedTensor> tensors, const Tensor& digests);

}  // namespace tutti::cpu
