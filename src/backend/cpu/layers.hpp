#pragma once
// One factory per layer spec, each in the layer's own source file. CpuBackend's std::visit does not compile
// without an overload for every spec.

#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"

#include "backend/cpu/library.hpp"

#include <memory>

namespace tutti::cpu {

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request);

std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const GlobalAveragePoolSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const ElementwiseSpec& spec, const LayerRequest& request);

std::unique_ptr<LossLayer> make_softmax_loss(const dnnl::engine& engine, const ActivationSpec& logits,
                                             const LossOptions& options);

}  // namespace tutti::cpu
