#pragma once
// What the layers of one backend compute with, and one factory per layer spec, each in the layer's own source file. A
// spec without its overload does not compile in the backend's visit.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/precision.hpp"

#include "backend/cuda/format.hpp"

#include <functional>
#include <memory>

namespace tutti::cuda {

class ConvolutionPlanner;

struct Processor {
  int device = 0;
  Precision precision = Precision::fp32;
  ElementType type = ElementType::f32;  // of activations within the network
  ConvolutionPlanner& planner;
};

// Inputs and residuals are activations within the network, never plain ones.
std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const GlobalAveragePoolSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request);

// A layer that is handed plain activations: it converts them for the layer within the network that `make` prepares, and
// its gradients back. So no other layer knows of plain ones.
std::unique_ptr<Layer> make_converting_layer(
    const Processor& processor, const LayerRequest& request,
    const std::function<std::unique_ptr<Layer>(const LayerRequest& within)>& make);

// What backward passes start with. Where an activation has more than three gradients, a pass of its own adds the others
// to the third. Asynchronous.
GradientSum gradients_of(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output);

}  // namespace tutti::cuda
