#pragma once
// The state that the layers of one backend share, and one factory per layer spec, each in the layer's own source file.
// CudaBackend's std::visit does not compile without an overload for every spec.

#include "tutti/backend/cuda_stream.hpp"
#include "tutti/backend/layer.hpp"
#include "tutti/backend/layer_spec.hpp"
#include "tutti/backend/precision.hpp"

#include "backend/cuda/format.hpp"
#include "backend/planned_layer.hpp"

#include <functional>
#include <memory>

namespace tutti::cuda {

class ConvolutionPlanner;

struct Processor {
  int device = 0;
  Precision precision = Precision::fp32;
  ElementType type = ElementType::f32;  // of native activations
  ConvolutionPlanner& planner;
};

// Inputs and residuals have the native layout.
std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const Pool2dSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const BatchNormSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const AddSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const GlobalAveragePoolSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const DropoutSpec& spec, const LayerRequest& request);
std::unique_ptr<Layer> make(const Processor& processor, const ElementwiseSpec& spec, const LayerRequest& request);

// For layers with ReLU that keep a mask of a bit per value, which is less to read than the output.
inline LayerReads with_mask(const LayerReads& reads) { return {.input = reads.input, .output = false}; }

class CudaLayer : public PlannedLayer {
 protected:
  CudaLayer(const LayerRequest& request, const ActivationSpec& output, const LayerReads& reads)
      : PlannedLayer(request, output, reads), type_(format_of(output).type()) {}
  bool is_bf16() const { return type_ == ElementType::bf16; }

  ElementType type_;
};

// A layer for plain activations. It converts them to the native layout for the layer that `make` returns, and converts
// the gradients back, so that other layers need not handle plain activations.
std::unique_ptr<Layer> make_converting_layer(
    const Processor& processor, const LayerRequest& request,
    const std::function<std::unique_ptr<Layer>(const LayerRequest& native_request)>& make);

// The first step of backward passes: the gradients of the output, three at most, which the layer's own kernel sums. If
// more than three layers read it, another kernel (elementwise.cu) adds the others to the third first. Asynchronous.
GradientSum reduce_to_three(CudaStream& stream, const LayerBackward& pass, const ActivationSpec& output);

}  // namespace tutti::cuda
