#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/cpu/tiles/tiled_convolution.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

// Convolutions and linear layers: y = w * x + b, then an optional ReLU. Each has a planner that chooses the primitives;
// the passes are shared.
namespace tutti::cpu {
namespace {

struct WeightedPlans {
  dnnl::primitive_desc_base forward;
  std::optional<dnnl::primitive_desc_base> backward_weights;  // reads the input in forward's layout
  std::optional<dnnl::primitive_desc_base> backward_data;
  TiledPasses tiled{};  // instead of these, over the same layouts
};

class Conv2dPlanner {
 public:
  Conv2dPlanner(const Processor& processor, const Conv2dSpec& spec, const Shape& input, const Shape& output)
      : engine_(processor.engine),
        type_(processor.type),
        may_tile_(processor.tiles),
        input_(dims_of(input)),
        output_(dims_of(output)),
        weight_{spec.channels, input[1], spec.kernel, spec.kernel},
        bias_(spec.bias ? plain({spec.channels}) : Desc()),
        strides_{spec.stride, spec.stride},
        padding_{spec.padding, spec.padding},
        relu_(spec.relu) {}

  WeightedPlans plan(const LayerRequest& request) const;

 private:
  using Algorithm = dnnl::algorithm;
  using Forward = dnnl::convolution_forward::primitive_desc;
  using BackwardWeights = dnnl::convolution_backward_weights::primitive_desc;
  using BackwardData = dnnl::convolution_backward_data::primitive_desc;

  struct Layout {
    Desc input;
    Desc output;
  };

  // How efficient oneDNN is with a layout, worst first.
  enum class Merit { reference_loops, image_unrolled, channels_padded, best };

  Forward forward(const Layout& layout, LayerMode mode) const {
    return make_plan<dnnl::convolution_forward>({engine_, attributes(relu_)}, forward_kind(mode), kDirect, layout.input,
                                                any(weight_, type_), bias_, layout.output, strides_, padding_,
                                                padding_);
  }

  BackwardWeights backward_weights(const Forward& hint) const {
    return make_backward_plan<dnnl::convolution_backward_weights>({engine_, attributes()}, hint, kDirect,
                                                                  hint.src_desc(), any(weight_, Type::f32), bias_,
                                                                  hint.dst_desc(), strides_, padding_, padding_);
  }

  BackwardData backward_data(const Forward& hint, const Layout& layout) const {
    return make_backward_plan<dnnl::convolution_backward_data>({engine_, attributes()}, hint, kDirect, layout.input,
                                                               any(weight_, type_), layout.output, strides_, padding_,
                                                               padding_);
  }

  Merit merit(const Forward& candidate, LayerMode mode) const;
  Forward choose_forward(const Desc& given, LayerMode mode) const;
  BackwardData choose_backward_data(const Forward& hint) const;

  static constexpr Algorithm kDirect = Algorithm::convolution_direct;

  const dnnl::engine& engine_;
  Type type_;
  bool may_tile_;
  dnnl::memory::dims input_;
  dnnl::memory::dims output_;
  dnnl::memory::dims weight_;
  Desc bias_;
  dnnl::memory::dims strides_;
  dnnl::memory::dims padding_;
  bool relu_;
};

// Reference loops are hundreds of times slower than generated code, and oneDNN falls back to them in the backward pass
// even if it has code for the forward pass. Blocked channels are fastest if the blocks are full: 20 channels are
// computed as 32, 50 as 64. For 20 to 50 channels, channels-last is 1.6 times as fast.
Conv2dPlanner::Merit Conv2dPlanner::merit(const Forward& candidate, LayerMode mode) const {
  const bool backward = mode == LayerMode::training;
  if (!is_compiled(candidate) || (backward && !is_compiled(backward_weights(candidate)))) {
    return Merit::reference_loops;
  }
  if (!is_direct(candidate) || (backward && !is_direct(backward_weights(candidate)))) {
    return Merit::image_unrolled;
  }
  const bool padded = pads_channels(candidate.src_desc()) || pads_channels(candidate.dst_desc());
  return padded ? Merit::channels_padded : Merit::best;
}

Conv2dPlanner::Forward Conv2dPlanner::choose_forward(const Desc& given, LayerMode mode) const {
  const Desc open_input = any(input_, type_);
  const Desc open_output = any(output_, type_);
  const std::array<Layout, 4> layouts{Layout{is_plain(given) ? open_input : with_type(given, type_), open_output},
                                      Layout{channels_last(input_, type_), channels_last(output_, type_)},
                                      Layout{open_input, open_output},
                                      Layout{plain(input_, type_), plain(output_, type_)}};
  Forward best = forward(layouts[0], mode);
  Merit best_merit = merit(best, mode);
  for (std::size_t i = 1; i < layouts.size() && best_merit < Merit::best; ++i) {
    Forward candidate = forward(layouts[i], mode);
    const Merit candidate_merit = merit(candidate, mode);
    if (candidate_merit <= best_merit) continue;
    best = std::move(candidate);
    best_merit = candidate_merit;
  }
  return best;
}

// oneDNN has no generated code for the gradient of an image with few channels in the forward layout.
Conv2dPlanner::BackwardData Conv2dPlanner::choose_backward_data(const Forward& hint) const {
  BackwardData same = backward_data(hint, {hint.src_desc(), hint.dst_desc()});
  return is_direct(same) ? same : backward_data(hint, {any(input_, type_), any(output_, type_)});
}

WeightedPlans Conv2dPlanner::plan(const LayerRequest& request) const {
  const Forward chosen = choose_forward(desc_of(request.input), request.mode);
  WeightedPlans plans{chosen, {}, {}};
  if (may_tile_)
    plans.tiled = choose_tiled_passes({chosen.src_desc(), chosen.dst_desc(), weight_[2], strides_[0], padding_[0]});
  if (request.mode == LayerMode::evaluation) return plans;
  plans.backward_weights = backward_weights(chosen);
  if (request.wants_input_gradient) plans.backward_data = choose_backward_data(chosen);
  return plans;
}

// Weights are described as units x channels x rows x columns, so that their order is canonical for any input layout.
class LinearPlanner {
 public:
  LinearPlanner(const Processor& processor, const LinearSpec& spec, const Shape& input)
      : engine_(processor.engine),
        type_(processor.type),
        input_(dims_of(input)),
        weight_(dims_of(input.with_first(spec.units))),
        bias_(spec.bias ? plain({spec.units}) : Desc()),
        output_(plain({input[0], spec.units})),
        relu_(spec.relu) {}

  WeightedPlans plan(const LayerRequest& request) const {
    const Forward chosen = choose_forward(desc_of(request.input), request.mode);
    WeightedPlans plans{chosen, {}, {}};
    if (request.mode == LayerMode::evaluation) return plans;
    const Desc gradient = with_type(output_, type_);
    const PlanContext context{engine_, attributes()};
    plans.backward_weights = make_backward_plan<dnnl::inner_product_backward_weights>(
        context, chosen, chosen.src_desc(), any(weight_, Type::f32), bias_, gradient);
    if (request.wants_input_gradient) {
      plans.backward_data = make_backward_plan<dnnl::inner_product_backward_data>(context, chosen, chosen.src_desc(),
                                                                                  any(weight_, type_), gradient);
    }
    return plans;
  }

 private:
  using Forward = dnnl::inner_product_forward::primitive_desc;

  Forward forward(const Desc& input, LayerMode mode) const {
    return make_plan<dnnl::inner_product_forward>({engine_, attributes(relu_)}, forward_kind(mode), input,
                                                  any(weight_, type_), bias_, output_);
  }

  // brgemm generates only the kernel that it needs. The general GEMM generates all its kernels on first use, which
  // takes longer than the steps of a small network.
  static bool multiplies_blocks(const Forward& plan) {
    return std::string_view(plan.impl_info_str()).starts_with("brgemm");
  }
  Forward choose_forward(const Desc& given, LayerMode mode) const {
    Forward same = forward(with_type(given, type_), mode);
    if (multiplies_blocks(same)) return same;
    Forward any_layout = forward(any(input_, type_), mode);
    return multiplies_blocks(any_layout) || !is_compiled(same) ? any_layout : same;
  }

  const dnnl::engine& engine_;
  Type type_;
  dnnl::memory::dims input_;
  dnnl::memory::dims weight_;
  Desc bias_;
  Desc output_;  // always f32: logits stay fp32 for accuracy
  bool relu_;
};

struct WeightedLayerDesc {
  WeightedPlans plans;
  Shape output;
  LayerReads reads;
  bool bias = false;
  bool relu = false;
};

class WeightedLayer final : public PlannedLayer {
 public:
  WeightedLayer(const dnnl::engine& engine, const LayerRequest& request, const WeightedLayerDesc& desc,
                CpuWeights& weights);

  void forward(Stream& stream, const LayerForward& pass) override;
  void backward(Stream& stream, const LayerBackward& pass) override;

 private:
  using Run = std::function<void(CpuStream&)>;
  struct WeightPass {
    Staged output_gradient;
    Staged weight_gradient;
    std::optional<BoundMemory> bias_gradient;
    Run run;
  };
  struct DataPass {
    Staged output_gradient;
    Staged input_gradient;
    Run run;
  };

  Run make_forward(const dnnl::engine& engine, const WeightedLayerDesc& desc, CpuWeights& weights) const;
  WeightPass make_weight_pass(const dnnl::engine& engine, const WeightedLayerDesc& desc) const;
  DataPass make_data_pass(const dnnl::engine& engine, const Desc& given, const WeightedLayerDesc& desc,
                          CpuWeights& weights) const;

  Staged input_;
  BoundMemory result_;
  BoundMemory result_gradient_;
  Run forward_;
  std::optional<Primitive> mask_;
  std::optional<WeightPass> weight_pass_;
  std::optional<DataPass> data_pass_;
};

Arguments forward_arguments(const WeightedLayerDesc& desc, CpuWeights& weights, const dnnl::memory& input,
                            const dnnl::memory& output) {
  Arguments arguments{{DNNL_ARG_SRC, input},
                      {DNNL_ARG_WEIGHTS, weights.prepared(0, desc.plans.forward.weights_desc(0))},
                      {DNNL_ARG_DST, output}};
  if (desc.bias) arguments.emplace(DNNL_ARG_BIAS, weights.prepared(1, desc.plans.forward.weights_desc(1)));
  return arguments;
}

std::function<void(CpuStream&)> running(Primitive primitive) {
  return [primitive = std::make_shared<Primitive>(std::move(primitive))](CpuStream& stream) { primitive->run(stream); };
}

const float* canonical(CpuWeights& weights, std::size_t index, const dnnl::memory::dims& dims) {
  return static_cast<const float*>(weights.prepared(index, plain(dims)).get_data_handle());
}

bool fuses_relu_mask(const WeightedLayerDesc& desc) { return desc.plans.tiled.mask && !desc.plans.backward_data; }

float* floats(const dnnl::memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

WeightedLayer::WeightedLayer(const dnnl::engine& engine, const LayerRequest& request, const WeightedLayerDesc& desc,
                             CpuWeights& weights)
    : PlannedLayer(request, activation_of(desc.output, desc.plans.forward.dst_desc()), desc.reads),
      input_(engine, desc_of(request.input), desc.plans.forward.src_desc(), Staged::Use::read),
      result_(engine, desc.plans.forward.dst_desc()),
      result_gradient_(engine, desc.plans.forward.dst_desc()),
      forward_(make_forward(engine, desc, weights)) {
  if (!desc.plans.backward_weights) return;
  if (desc.relu && !fuses_relu_mask(desc)) mask_ = make_relu_mask(engine, result_.memory(), result_gradient_.memory());
  weight_pass_ = make_weight_pass(engine, desc);
  if (desc.plans.backward_data) data_pass_ = make_data_pass(engine, desc_of(request.input), desc, weights);
}

WeightedLayer::Run WeightedLayer::make_forward(const dnnl::engine& engine, const WeightedLayerDesc& desc,
                                               CpuWeights& weights) const {
  const auto& plan = desc.plans.forward;
  const dnnl::memory input = input_.memory();
  const dnnl::memory output = result_.memory();
  const auto tiled = desc.plans.tiled.forward;
  if (!tiled) return running(Primitive(engine, plan, forward_arguments(desc, weights, input, output)));
  const float* const windows = canonical(weights, 0, dims_of(plan.weights_desc(0)));
  const float* const bias = desc.bias ? canonical(weights, 1, dims_of(plan.weights_desc(1))) : nullptr;
  return [=, relu = desc.relu](CpuStream& stream) {
    tiled->forward(stream, {input.get_data_handle(), windows, bias, output.get_data_handle(), relu});
  };
}

WeightedLayer::WeightPass WeightedLayer::make_weight_pass(const dnnl::engine& engine,
                                                          const WeightedLayerDesc& desc) const {
  const auto& plan = *desc.plans.backward_weights;
  const auto tiled = desc.plans.tiled.backward_weights;
  const Desc kept = result_gradient_.memory().get_desc();
  const Desc canonical_weight = plain(dims_of(plan.diff_weights_desc(0)));
  const Staged output_gradient(engine, kept, tiled ? kept : plan.diff_dst_desc(), Staged::Use::read);
  const Staged weight_gradient(engine, canonical_weight, tiled ? canonical_weight : plan.diff_weights_desc(0),
                               Staged::Use::written);

  std::optional<BoundMemory> bias_gradient;
  if (desc.bias) bias_gradient.emplace(engine, plan.diff_weights_desc(1));
  if (tiled) {
    return {output_gradient, weight_gradient, bias_gradient,
            [=, masks = desc.relu && fuses_relu_mask(desc), input = input_.memory(), output = result_.memory(),
             gradient = output_gradient.memory(), windows = weight_gradient.memory(),
             bias = bias_gradient ? bias_gradient->memory() : dnnl::memory()](CpuStream& stream) {
              tiled->backward_weights(
                  stream, {input.get_data_handle(), gradient.get_data_handle(),
                           masks ? output.get_data_handle() : nullptr, floats(windows), bias ? floats(bias) : nullptr});
            }};
  }
  Arguments arguments{{DNNL_ARG_SRC, input_.memory()},
                      {DNNL_ARG_DIFF_DST, output_gradient.memory()},
                      {DNNL_ARG_DIFF_WEIGHTS, weight_gradient.memory()}};
  if (bias_gradient) arguments.emplace(DNNL_ARG_DIFF_BIAS, bias_gradient->memory());
  return {output_gradient, weight_gradient, bias_gradient, running(Primitive(engine, plan, std::move(arguments)))};
}

WeightedLayer::DataPass WeightedLayer::make_data_pass(const dnnl::engine& engine, const Desc& given,
                                                      const WeightedLayerDesc& desc, CpuWeights& weights) const {
  const auto& plan = *desc.plans.backward_data;
  const auto tiled = desc.plans.tiled.backward_data;
  const Desc kept = result_gradient_.memory().get_desc();
  const Staged output_gradient(engine, kept, tiled ? kept : plan.diff_dst_desc(), Staged::Use::read);
  const Staged input_gradient(engine, given, tiled ? desc.plans.forward.src_desc() : plan.diff_src_desc(),
                              Staged::Use::written);
  if (tiled) {
    const float* const windows = canonical(weights, 0, dims_of(plan.weights_desc(0)));
    return {output_gradient, input_gradient,
            [=, from = output_gradient.memory(), to = input_gradient.memory()](CpuStream& stream) {
              tiled->backward_data(stream, {from.get_data_handle(), windows, to.get_data_handle()});
            }};
  }
  return {output_gradient, input_gradient,
          running(Primitive(engine, plan,
                            {{DNNL_ARG_DIFF_DST, output_gradient.memory()},
                             {DNNL_ARG_WEIGHTS, weights.prepared(0, plan.weights_desc(0))},
                             {DNNL_ARG_DIFF_SRC, input_gradient.memory()}}))};
}

void WeightedLayer::forward(Stream& stream, const LayerForward& pass) {
  CpuStream& ours = cpu_stream(stream);
  input_.load(ours, pass.input);
  result_.bind(pass.output);
  forward_(ours);
}

void WeightedLayer::backward(Stream& stream, const LayerBackward& pass) {
  CpuStream& ours = cpu_stream(stream);
  require_training(pass);
  const std::size_t expected = weight_pass_->bias_gradient ? 2 : 1;
  if (pass.gradients.size() != expected) {
    throw Error(ErrorSource::internal,
                fmt::format("a layer with {} parameters got {} gradient tensors", expected, pass.gradients.size()));
  }
  sum_output_gradients(pass, result_gradient_.memory().get_desc());
  result_gradient_.bind(pass.output_gradients[0]);
  if (reads_output()) result_.bind(pass.output);
  if (mask_) mask_->run(ours);

  weight_pass_->output_gradient.load(ours, pass.output_gradients[0]);
  weight_pass_->weight_gradient.bind(pass.gradients[0].data);
  if (weight_pass_->bias_gradient) weight_pass_->bias_gradient->bind(pass.gradients[1].data);
  weight_pass_->run(ours);
  weight_pass_->weight_gradient.deliver(ours);

  if (!data_pass_) return;
  data_pass_->output_gradient.load(ours, pass.output_gradients[0]);
  data_pass_->input_gradient.bind(pass.input_gradient);
  data_pass_->run(ours);
  data_pass_->input_gradient.deliver(ours);
}

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  const Shape output = batch_output(spec, request.input.shape);
  const auto plans = Conv2dPlanner(processor, spec, request.input.shape, output).plan(request);
  const WeightedLayerDesc desc{plans, output, backward_reads(spec), spec.bias, spec.relu};
  return std::make_unique<WeightedLayer>(processor.engine, request, desc, weights_of(spec, request));
}

std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  const Shape output = batch_output(spec, request.input.shape);
  const auto plans = LinearPlanner(processor, spec, request.input.shape).plan(request);
  const WeightedLayerDesc desc{plans, output, backward_reads(spec), spec.bias, spec.relu};
  return std::make_unique<WeightedLayer>(processor.engine, request, desc, weights_of(spec, request));
}

}  // namespace tutti::cpu
