#pragma once
// What every backend demands of those who call it, and the numbers that must be the same on every backend.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include <span>
#include <string_view>

namespace tutti {

// Throws unless there are as many of the one as of the other: "{doing} tensors of {one} and {other}".
void require_equal_sizes(std::string_view doing, std::int64_t one, std::int64_t other);

// Throws unless the input has samples.
void require_samples(const LayerSpec& spec, const LayerRequest& request);

// Throws unless `values`, which are the weights of `owner`, are those of `spec` behind an input of this sample.
void require_weights(const LayerSpec& owner, std::span<const Tensor> values, const LayerSpec& spec,
                     const Shape& sample);

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

// Throws an input error for logits that are not samples x classes, a usage error for smoothing outside 0 .. 1.
void require_loss(const Shape& logits, double smoothing);
// Throws unless the sums have a place for each figure.
void require_loss_sums(const LossPass& pass);

// Throw unless there are pixels for each label; unless a tensor of a gathered batch is of this shape.
void require_images(const HeldImages& images);
void require_gathered(std::string_view what, const Tensor& tensor, const Shape& shape);

// What every element of an AdamW step is computed with. Plain numbers, for kernels too.
struct AdamWFactors {
  float kept;  // of a weight, after its decay
  float rate;
  float beta1;
  float beta2;
  float fresh1;
  float fresh2;
  float inverse_root;
  float epsilon;
};
AdamWFactors factors_of(const AdamWStep& step);

}  // namespace tutti
