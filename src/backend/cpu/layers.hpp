#pragma once
// One factory per layer spec, each in the layer's own source file. CpuBackend's std::visit does not compile
// without an overload for every spec.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include <memory>

namespace tutti::cpu {

// Convolutions and linear layers compute activations of this type; the others, of their input's.
std::unique_ptr<Layer> make(ElementType type, const Conv2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(ElementType type, const LinearSpec& spec, const LayerRequest& request);

std::unique_ptr<Layer> make(ElementType, const Pool2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(ElementType, const BatchNormSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(ElementType, const AddSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(ElementType, const GlobalAveragePoolSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(ElementType, const DropoutSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(ElementType, const ElementwiseSpec& spec, const LayerRequest& request);

std::unique_ptr<LossLayer> make_softmax_loss(const ActivationSpec& logits, const LossOptions& options);

}  // namespace tutti::cpu
