#include "backend/cpu/tiled_layers.hpp"

#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <optional>

namespace tutti::cpu {
namespace {

// Norms add up blocks of 16 channels fastest; other numbers of channels would pad them.
Desc layout_of(const dnnl::memory::dims& dims, Type type) {
  return dims[1] % 16 == 0 ? Desc(dims, type, Tag::nChw16c) : channels_last(dims, type);
}

bool is_readable(const Desc& desc) {
  const ChannelLayout layout(desc);
  return layout.adjacent_channels() || (layout.period() == 16 && !pads_channels(desc));
}

struct TiledPlan {
  TiledPasses passes;
  Desc input;
  Desc output;
  Type gradient;  // of the output, as the passes read it
  bool bias;
  bool relu;
};

TiledPlan plan(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  const Desc& given = desc_of(request.input);
  const auto dims = dims_of(request.input.shape);
  TiledShape shape{.input = {},
                   .output = layout_of(dims_of(batch_output(spec, request.input.shape)), processor.type),
                   .channels = dims[1],
                   .window = spec.kernel,
                   .stride = spec.stride,
                   .padding = spec.padding,
                   .dilation = spec.dilation,
                   .groups = spec.groups};
  const bool reads_any = is_few_channel(shape) && !request.wants_input_gradient;
  shape.input = is_readable(given) || reads_any ? with_type(given, processor.type) : layout_of(dims, processor.type);
  return {choose_tiled_passes(shape), shape.input, shape.output, processor.type, spec.bias, spec.relu};
}

TiledPlan plan(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  const Desc& given = desc_of(request.input);
  const Desc input = is_readable(given) || is_plain(given) ? with_type(given, processor.type)
                                                           : layout_of(dims_of(request.input.shape), processor.type);
  const auto product = make_matrix_linear(input, spec.units);
  // Always f32: logits stay fp32 for accuracy.
  const Desc output = plain({request.input.shape[0], spec.units});
  return {{product, product, product}, input, output, processor.type, spec.bias, spec.relu};
}

class TiledLayer final : public PlannedLayer {
 public:
  TiledLayer(const dnnl::engine& engine, const LayerSpec& spec, const LayerRequest& request, const TiledPlan& plan)
      : PlannedLayer(request, activation_of(batch_output(spec, request.input.shape), plan.output),
                     backward_reads(spec)),
        weights_(weights_of(spec, request)),
        bias_(plan.bias),
        relu_(plan.relu),
        fuses_mask_(plan.passes.mask && !request.wants_input_gradient),
        passes_(plan.passes),
        input_(engine, desc_of(request.input), plan.input, Staged::Use::read) {
    if (request.mode != LayerMode::training) return;
    output_gradient_.emplace(engine, plan.output, with_type(plan.output, plan.gradient), Staged::Use::read);
    if (!request.wants_input_gradient) return;
    input_gradient_.emplace(engine, desc_of(request.input), plan.input, Staged::Use::written);
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    input_.load(ours, pass.input);
    const float* const bias = bias_ ? weights_.canonical(1) : nullptr;
    passes_.forward->forward(ours, {input_.address(), weights_.canonical(0), bias, pass.output, relu_});
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    require_training(pass);
    require_gradients(pass, bias_);
    const void* const of_relu = relu_ ? pass.output : nullptr;
    sum_output_gradients(pass, desc_of(output_), fuses_mask_ ? nullptr : of_relu);
    output_gradient_->load(ours, pass.output_gradients[0]);
    passes_.backward_weights->backward_weights(
        ours, {input_.address(), output_gradient_->address(), fuses_mask_ ? of_relu : nullptr,
               host_f32(pass.gradients[0]).data(), bias_ ? host_f32(pass.gradients[1]).data() : nullptr});
    if (pass.input_gradient == nullptr) return;
    input_gradient_->bind(pass.input_gradient);
    passes_.backward_data->backward_data(
        ours, {output_gradient_->address(), weights_.canonical(0), input_gradient_->address()});
    input_gradient_->deliver(ours);
  }

 private:
  CpuWeights& weights_;
  bool bias_;
  bool relu_;
  bool fuses_mask_;
  TiledPasses passes_;
  Staged input_;
  std::optional<Staged> output_gradient_;
  std::optional<Staged> input_gradient_;
};

}  // namespace

std::unique_ptr<Layer> make_tiled(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  return std::make_unique<TiledLayer>(processor.engine, spec, request, plan(processor, spec, request));
}

std::unique_ptr<Layer> make_tiled(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  return std::make_unique<TiledLayer>(processor.engine, spec, request, plan(processor, spec, request));
}

void require_gradients(const LayerBackward& pass, bool bias) {
  const std::size_t expected = bias ? 2 : 1;
  if (pass.gradients.size() == expected) return;
  throw Error(ErrorSource::internal,
              fmt::format("a layer with {} parameters got {} gradient tensors", expected, pass.gradients.size()));
}

}  // namespace tutti::cpu
