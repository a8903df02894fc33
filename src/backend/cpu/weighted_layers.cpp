// Convolutions and linear layers: y = w * x + b, then an optional ReLU. The layouts of activations depend only on the
// shapes, so that all processors give the same bits (tiles/tiled_convolution.hpp).

#include "tutti/base/error.hpp"

#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/staged.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <fmt/format.h>

#include <optional>

namespace tutti::cpu {
namespace {

// Norms add up blocks of 16 channels fastest.
Layout preferred_layout(const Shape& shape, ElementType type) { return {shape, type, ChannelOrder::blocks}; }

struct WeightedPlan {
  TiledPasses passes;
  Layout input;
  Layout output;  // its gradient is of the input's type
  bool bias;
  bool relu;
};

WeightedPlan plan(ElementType type, const Conv2dSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  // With larger strides there is one window along each axis, too, and the work would grow with them.
  const std::int64_t largest_stride = std::max(input[2], input[3]) + 2 * spec.padding;
  TiledShape shape{.input = layout_of(request.input).with_type(type),
                   .output = preferred_layout(batch_output(spec, input), type),
                   .window = spec.kernel,
                   .stride = std::min(spec.stride, largest_stride),
                   .padding = spec.padding,
                   .dilation = spec.dilation,
                   .groups = spec.groups};
  const bool reads_any = is_few_channel(shape) && !request.wants_input_gradient;
  if (!has_blocks_of_16(shape.input) && !reads_any) shape.input = preferred_layout(input, type);
  return {choose_tiled_passes(shape), shape.input, shape.output, spec.bias, spec.relu};
}

WeightedPlan plan(ElementType type, const LinearSpec& spec, const LayerRequest& request) {
  const Layout input = layout_of(request.input).with_type(type);
  const auto product = make_matrix_linear(input, spec.units);
  // Always f32: logits stay fp32 for accuracy.
  return {{product, product, product}, input, plain({input.shape()[0], spec.units}), spec.bias, spec.relu};
}

class WeightedLayer final : public PlannedLayer {
 public:
  WeightedLayer(const LayerSpec& spec, const LayerRequest& request, const WeightedPlan& plan)
      : PlannedLayer(request, activation_of(plan.output), backward_reads(spec)),
        weights_(weights_of(spec, request)),
        plan_(plan),
        fuses_mask_(plan.passes.mask && !request.wants_input_gradient),
        input_(layout_of(request.input), plan.input) {
    if (request.mode != LayerMode::training) return;
    output_gradient_.emplace(plan.output, plan.output.with_type(plan.input.type()));
    if (!request.wants_input_gradient) return;
    input_gradient_.emplace(layout_of(request.input), plan.input);
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    input_.load(ours, pass.input);
    const float* const bias = plan_.bias ? weights_.canonical(1) : nullptr;
    plan_.passes.forward->forward(ours, {input_.address(), weights_.canonical(0), bias, pass.output, plan_.relu});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    require_training(pass);
    require_gradients(pass);
    const void* const of_relu = plan_.relu ? pass.output : nullptr;
    sum_output_gradients(pass, layout_of(output_), fuses_mask_ ? nullptr : of_relu);
    output_gradient_->load(ours, pass.output_gradients[0]);
    plan_.passes.backward_weights->backward_weights(
        ours, {input_.address(), output_gradient_->address(), fuses_mask_ ? of_relu : nullptr,
               host_f32(pass.gradients[0]).data(), plan_.bias ? host_f32(pass.gradients[1]).data() : nullptr});
    if (pass.input_gradient == nullptr) return;
    input_gradient_->bind(pass.input_gradient);
    plan_.passes.backward_data->backward_data(
        ours, {output_gradient_->address(), weights_.canonical(0), input_gradient_->address()});
    input_gradient_->deliver(ours);
  }

 private:
  void require_gradients(const LayerBackward& pass) const {
    const std::size_t expected = plan_.bias ? 2 : 1;
    if (pass.gradients.size() == expected) return;
    throw Error(ErrorSource::internal,
                fmt::format("a layer with {} parameters got {} gradient tensors", expected, pass.gradients.size()));
  }

  const CpuWeights& weights_;
  WeightedPlan plan_;
  bool fuses_mask_;
  Staged input_;
  std::optional<Staged> output_gradient_;
  std::optional<Staged> input_gradient_;
};

}  // namespace

std::unique_ptr<Layer> make(ElementType type, const Conv2dSpec& spec, const LayerRequest& request) {
  return std::make_unique<WeightedLayer>(spec, request, plan(type, spec, request));
}

std::unique_ptr<Layer> make(ElementType type, const LinearSpec& spec, const LayerRequest& request) {
  return std::make_unique<WeightedLayer>(spec, request, plan(type, spec, request));
}

}  // namespace tutti::cpu
