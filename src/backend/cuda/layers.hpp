#pragma once
// One factory per layer spec, each in the layer's own source file; inputs and residuals are activations within the
// network, never plain ones. A spec without its overload does not compile in the backend's visit.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include "backend/cuda/processor.hpp"

#include <memory>
#include <span>

namespace tutti::cuda {

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const GlobalAveragePoolSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request);

// The logits may be plain, too.
std::unique_ptr<LossLayer> make_softmax_loss(const Processor& processor, const ActivationSpec& logits,
                                             double smoothing);

// In the precisions of the layers that take them: convolutions, linear layers, batch norm.
std::unique_ptr<LayerWeights> make_weights(const Processor& processor, const LayerSpec& spec,
                                           std::span<const Tensor> values);

}  // namespace tutti::cuda
