#pragma once
// What layers and sums of every backend demand of who calls them.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/fixed_point.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

namespace tutti {

// Throws unless the request has a residual of the input's shape.
void require_residual(const LayerSpec& spec, const LayerRequest& request);

// What every backward pass starts with: gradients are of plans made in training mode, and there is one at least.
void require_training(LayerMode mode, const LayerBackward& pass);

// Throw unless there are as many sums as values, and one exponent, and one largest value, for each slice.
void require_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request);
void require_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request);

// Throws unless there is a digest for each tensor, and all are of types that can be digested, in this memory.
void require_digests(std::span<const DigestedTensor> tensors, const Tensor& digests, MemorySpace space);

// Throws unless there is a slice, one number to raise, and one to go by, if any.
void require_search(const NotFiniteSearch& search);

}  // namespace tutti
