#pragma once
// Argument checks and AdamW's factors, shared by the backends.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include <span>
#include <string_view>

namespace tutti {

// Throws "{doing} tensors of {one} and {other}" unless the two are equal.
void require_equal_sizes(std::string_view doing, std::int64_t one, std::int64_t other);

// Throws unless one is f32, the other bf16, and both have the same number of elements.
void require_conversion(const Tensor& to, const Tensor& from);

// Throws unless the input has samples of a shape that the layer accepts.
void require_samples(const LayerSpec& spec, const LayerRequest& request);

// The shape of the layer's output for this batch.
Shape batch_output(const LayerSpec& spec, const Shape& input);

// Throws unless `values`, the weights of `owner`, match `spec` on samples of this shape.
void require_weights(const LayerSpec& owner, std::span<const Tensor> values, const LayerSpec& spec,
                     const Shape& sample);

// Throws unless the residual has the input's shape.
void require_residual(const LayerSpec& spec, const LayerRequest& request);

// Throw unless there is a sum for each value, and an exponent and a largest value for each slice.
void require_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request);
void require_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request);

// Throws unless there is a digest for each tensor, and all tensors are in this memory and of a type that has digests.
void require_digests(std::span<const DigestedTensor> tensors, const Tensor& digests, MemorySpace space);

// Throws unless there is a slice, one result, and at most one condition.
void require_search(const NotFiniteSearch& search);

// Throws an input error for logits that are not samples x classes, a usage error for smoothing outside 0 .. 1
// and unless there is a weight of 0 or more for each class or none.
void require_loss(const Shape& logits, const LossOptions& options);
// Throws unless the sums have an element for each field.
void require_loss_sums(const LossPass& pass);

// Throws unless there are pixels for each label.
void require_images(const ImageSet& images);
// Throws unless a tensor of an ImageGather has this shape.
void require_shape(std::string_view what, const Tensor& tensor, const Shape& shape);

}  // namespace tutti
