#pragma once
// What every backend requires of its callers, what layers of every backend have in common, and numbers that must be the
// same on every backend.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include <span>
#include <string_view>
#include <utility>

namespace tutti {

// Throws "{doing} tensors of {one} and {other}" unless the two are equal.
void require_equal_sizes(std::string_view doing, std::int64_t one, std::int64_t other);

// Throws unless the input has samples, of a shape that the layer takes.
void require_samples(const LayerSpec& spec, const LayerRequest& request);

// The shape of the layer's output for this batch.
Shape batch_output(const LayerSpec& spec, const Shape& input);

// Throws unless `values`, the weights of `owner`, are those of `spec` on samples of this shape.
void require_weights(const LayerSpec& owner, std::span<const Tensor> values, const LayerSpec& spec,
                     const Shape& sample);

// Throws unless the request has a residual of the input's shape.
void require_residual(const LayerSpec& spec, const LayerRequest& request);

// Throw unless there is a sum for each value, and an exponent and a largest value for each slice.
void require_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request);
void require_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request);

// Throws unless there is a digest for each tensor, and all tensors lie in this memory and have types with digests.
void require_digests(std::span<const DigestedTensor> tensors, const Tensor& digests, MemorySpace space);

// Throws unless there is a slice, one result, and at most one condition.
void require_search(const NotFiniteSearch& search);

// Throws an input error for logits that are not samples x classes, a usage error for smoothing outside 0 .. 1.
void require_loss(const Shape& logits, double smoothing);
// Throws unless the sums have an element for each figure.
void require_loss_sums(const LossPass& pass);

// What backward() reads of the forward pass.
struct LayerReads {
  bool input = false;
  bool output = false;
};

// What the layers of every backend keep of their request.
class PlannedLayer : public Layer {
 public:
  const ActivationSpec& output() const final { return output_; }
  bool reads_input() const final { return reads_.input; }
  bool reads_output() const final { return reads_.output; }

 protected:
  PlannedLayer(const LayerRequest& request, ActivationSpec output, const LayerReads& reads = {})
      : mode_(request.mode),
        wants_input_gradient_(request.wants_input_gradient),
        output_(std::move(output)),
        reads_(reads) {}

  // Every backward pass starts with this: throws unless the plan was made for training and there is a gradient.
  void require_training(const LayerBackward& pass) const;

  LayerMode mode_;
  bool wants_input_gradient_;
  ActivationSpec output_;

 private:
  LayerReads reads_;
};

// Throw unless there are pixels for each label; unless a tensor of a gathered batch has this shape.
void require_images(const HeldImages& images);
void require_gathered(std::string_view what, const Tensor& tensor, const Shape& shape);

// The factors of an AdamW step that are the same for all elements. Plain numbers, for kernels too.
struct AdamWFactors {
  float kept;  // the share of a weight that its decay leaves
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
