// Convolutions and linear layers: y = w * x + b, then an optional ReLU. Those of tiled_layers.cpp are our own; here are
// oneDNN's, for groups of channels. Each has a planner that chooses the primitives; the passes are
// shared.

#include "backend/cpu/layer_loops.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"
#include "backend/cpu/tiled_layers.hpp"
#include "backend/cpu/weights.hpp"
#include "backend/planned_layer.hpp"
#include "backend/requests.hpp"

#include <optional>
#include <string_view>
#include <utility>

namespace tutti::cpu {
namespace {

struct WeightedPlans {
  bool bias = false;
  bool relu = false;
  dnnl::primitive_desc_base forward;
  std::optional<dnnl::primitive_desc_base> backward_weights{};  // reads the input in forward's layout
  std::optional<dnnl::primitive_desc_base> backward_data{};
};

// oneDNN has no bf16 below AVX-512: there, layers convert their input, and give f32.
Type compiled_type(const Processor& processor) {
  return compiles_for(dnnl::cpu_isa::avx512_core) ? processor.type : Type::f32;
}

struct Conv2dPlanner {
  using Dims = dnnl::memory::dims;
  using Forward = dnnl::convolution_forward::primitive_desc;
  using BackwardWeights = dnnl::convolution_backward_weights::primitive_desc;
  using BackwardData = dnnl::convolution_backward_data::primitive_desc;

  // How well oneDNN computes in a layout, worst first.
  enum class Merit { outside_memory, reference_loops, image_unrolled, channels_padded, best };

  static constexpr auto kDirect = dnnl::algorithm::convolution_direct;

  const Processor& processor;
  const Conv2dSpec& spec;
  const LayerRequest& request;

  Type type = compiled_type(processor);
  Dims input = dims_of(request.input.shape);
  Dims output = dims_of(batch_output(spec, request.input.shape));
  // With groups, oneDNN wants an axis for them; the order of the weights is the same.
  Dims weight = spec.groups == 1
                    ? Dims{spec.channels, input[1], spec.kernel, spec.kernel}
                    : Dims{spec.groups, spec.channels / spec.groups, input[1] / spec.groups, spec.kernel, spec.kernel};
  Dims strides = {spec.stride, spec.stride};
  Dims dilation = {spec.dilation - 1, spec.dilation - 1};
  Dims padding = {spec.padding, spec.padding};
  Desc bias = spec.bias ? plain({spec.channels}) : Desc();

  Forward forward(const Desc& from, const Desc& to) const {
    return make_plan<dnnl::convolution_forward>({processor.engine, attributes(spec.relu)}, forward_kind(request.mode),
                                                kDirect, from, any(weight, type), bias, to, strides, dilation, padding,
                                                padding);
  }

  BackwardWeights backward_weights(const Forward& hint) const {
    return make_backward_plan<dnnl::convolution_backward_weights>({processor.engine, attributes()}, hint, kDirect,
                                                                  hint.src_desc(), any(weight, Type::f32), bias,
                                                                  hint.dst_desc(), strides, dilation, padding, padding);
  }

  BackwardData backward_data(const Forward& hint, const Desc& from, const Desc& to) const {
    return make_backward_plan<dnnl::convolution_backward_data>({processor.engine, attributes()}, hint, kDirect, from,
                                                               any(weight, type), to, strides, dilation, padding,
                                                               padding);
  }

  // In the weight gradient of a strided 1x1 convolution of fewer channels than a vector has, oneDNN writes beyond its
  // memory if the channels are innermost (its issue 6035): gradients are wrong, and programs crash or hang.
  bool writes_outside_memory(const Forward& candidate) const {
    const std::int64_t vector = compiles_for(dnnl::cpu_isa::avx512_core) ? 16 : 8;
    return spec.kernel == 1 && spec.stride > 1 && input[1] < vector &&
           candidate.src_desc() == channels_last(input, type) &&
           std::string_view(backward_weights(candidate).impl_info_str()).starts_with("jit_1x1");
  }

  // Reference loops are hundreds of times slower than generated code, and oneDNN falls back to them in the backward
  // pass even if it has code for the forward pass. Blocked channels are fastest if the blocks are full: 20 channels are
  // computed as 32, 50 as 64. For 20 to 50 channels, channels-last is 1.6 times as fast.
  Merit merit(const Forward& candidate) const {
    const bool backward = request.mode == LayerMode::training;
    if (backward && writes_outside_memory(candidate)) return Merit::outside_memory;
    if (!is_compiled(candidate) || (backward && !is_compiled(backward_weights(candidate)))) {
      return Merit::reference_loops;
    }
    if (!is_direct(candidate) || (backward && !is_direct(backward_weights(candidate)))) {
      return Merit::image_unrolled;
    }
    const bool padded = pads_channels(candidate.src_desc()) || pads_channels(candidate.dst_desc());
    return padded ? Merit::channels_padded : Merit::best;
  }

  Forward choose_forward() const {
    const Desc& given = desc_of(request.input);
    const Desc open_input = any(input, type);
    const Desc open_output = any(output, type);
    Forward best = forward(is_plain(given) ? open_input : with_type(given, type), open_output);
    Merit best_merit = merit(best);
    for (const auto& [from, to] :
         {std::pair(channels_last(input, type), channels_last(output, type)), std::pair(open_input, open_output),
          std::pair(plain(input, type), plain(output, type))}) {
      if (best_merit == Merit::best) break;
      Forward candidate = forward(from, to);
      const Merit candidate_merit = merit(candidate);
      if (candidate_merit <= best_merit) continue;
      best = std::move(candidate);
      best_merit = candidate_merit;
    }
    return best;
  }

  // oneDNN has no generated code for the gradient of an image with few channels in the forward layout.
  BackwardData choose_backward_data(const Forward& hint) const {
    BackwardData same = backward_data(hint, hint.src_desc(), hint.dst_desc());
    return is_direct(same) ? same : backward_data(hint, any(input, type), any(output, type));
  }

  WeightedPlans plan() const {
    const Forward chosen = choose_forward();
    WeightedPlans plans{.bias = spec.bias, .relu = spec.relu, .forward = chosen};
    if (request.mode == LayerMode::evaluation) return plans;
    plans.backward_weights = backward_weights(chosen);
    if (request.wants_input_gradient) plans.backward_data = choose_backward_data(chosen);
    return plans;
  }
};

struct LinearPlanner {
  using Forward = dnnl::inner_product_forward::primitive_desc;

  const Processor& processor;
  const LinearSpec& spec;
  const LayerRequest& request;

  Type type = compiled_type(processor);
  const Shape& input = request.input.shape;
  // Units x channels x rows x columns, so that the order is canonical for any layout of the input.
  dnnl::memory::dims weight = dims_of(input.with_first(spec.units));
  Desc bias = spec.bias ? plain({spec.units}) : Desc();
  Desc output = plain({input[0], spec.units});  // always f32: logits stay fp32 for accuracy

  Forward forward(const Desc& from) const {
    return make_plan<dnnl::inner_product_forward>({processor.engine, attributes(spec.relu)}, forward_kind(request.mode),
                                                  from, any(weight, type), bias, output);
  }

  // brgemm generates only the kernel that it needs. The general GEMM generates all its kernels on first use, which
  // takes longer than the steps of a small network.
  static bool multiplies_blocks(const Forward& plan) {
    return std::string_view(plan.impl_info_str()).starts_with("brgemm");
  }
  Forward choose_forward() const {
    Forward same = forward(with_type(desc_of(request.input), type));
    if (multiplies_blocks(same)) return same;
    Forward any_layout = forward(any(dims_of(input), type));
    return multiplies_blocks(any_layout) || !is_compiled(same) ? any_layout : same;
  }

  WeightedPlans plan() const {
    const Forward chosen = choose_forward();
    WeightedPlans plans{.bias = spec.bias, .relu = spec.relu, .forward = chosen};
    if (request.mode == LayerMode::evaluation) return plans;
    const Desc gradient = with_type(output, type);
    const PlanContext context{processor.engine, attributes()};
    plans.backward_weights = make_backward_plan<dnnl::inner_product_backward_weights>(
        context, chosen, chosen.src_desc(), any(weight, Type::f32), bias, gradient);
    if (request.wants_input_gradient) {
      plans.backward_data = make_backward_plan<dnnl::inner_product_backward_data>(context, chosen, chosen.src_desc(),
                                                                                  any(weight, type), gradient);
    }
    return plans;
  }
};

class WeightedLayer final : public PlannedLayer {
 public:
  WeightedLayer(const dnnl::engine& engine, const LayerSpec& spec, const LayerRequest& request,
                const WeightedPlans& plans)
      : PlannedLayer(request, activation_of(batch_output(spec, request.input.shape), plans.forward.dst_desc()),
                     backward_reads(spec)),
        weights_(weights_of(spec, request)),
        bias_(plans.bias),
        relu_(plans.relu),
        input_(engine, desc_of(request.input), plans.forward.src_desc(), Staged::Use::read),
        result_(unbound(engine, plans.forward.dst_desc())),
        result_gradient_(unbound(engine, plans.forward.dst_desc())) {
    forward_ = make_forward(engine, plans.forward);
    if (!plans.backward_weights) return;
    weight_pass_ = make_weight_pass(engine, *plans.backward_weights);
    if (plans.backward_data) data_pass_ = make_data_pass(engine, desc_of(request.input), plans);
  }

  void forward(Stream& stream, const LayerForward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    input_.load(ours, pass.input);
    bind(result_, pass.output);
    forward_->run(ours);
  }

  void backward(Stream& stream, const LayerBackward& pass) override {
    CpuStream& ours = cpu_stream(stream);
    require_training(pass);
    require_gradients(pass, bias_);
    sum_output_gradients(pass, result_gradient_.get_desc(), relu_ ? pass.output : nullptr);
    void* const gradient = pass.output_gradients[0];

    weight_pass_->output_gradient.load(ours, gradient);
    weight_pass_->weight_gradient.bind(pass.gradients[0].data);
    if (bias_) bind(weight_pass_->bias_gradient, pass.gradients[1].data);
    weight_pass_->primitive.run(ours);
    weight_pass_->weight_gradient.deliver(ours);

    if (pass.input_gradient == nullptr) return;
    data_pass_->output_gradient.load(ours, gradient);
    data_pass_->input_gradient.bind(pass.input_gradient);
    data_pass_->primitive.run(ours);
    data_pass_->input_gradient.deliver(ours);
  }

 private:
  struct WeightPass {
    Staged output_gradient;
    Staged weight_gradient;
    dnnl::memory bias_gradient;
    Primitive primitive;
  };
  struct DataPass {
    Staged output_gradient;
    Staged input_gradient;
    Primitive primitive;
  };

  Primitive make_forward(const dnnl::engine& engine, const dnnl::primitive_desc_base& plan) const {
    Arguments arguments{{DNNL_ARG_SRC, input_.memory()},
                        {DNNL_ARG_WEIGHTS, weights_.prepared(0, plan.weights_desc(0))},
                        {DNNL_ARG_DST, result_}};
    if (bias_) arguments.emplace(DNNL_ARG_BIAS, weights_.prepared(1, plan.weights_desc(1)));
    return Primitive(engine, plan, std::move(arguments));
  }

  WeightPass make_weight_pass(const dnnl::engine& engine, const dnnl::primitive_desc_base& plan) const {
    const Staged output_gradient(engine, result_gradient_.get_desc(), plan.diff_dst_desc(), Staged::Use::read);
    const Desc weight = plan.diff_weights_desc(0);
    const Staged weight_gradient(engine, plain(dims_of(weight)), weight, Staged::Use::written);
    Arguments arguments{{DNNL_ARG_SRC, input_.memory()},
                        {DNNL_ARG_DIFF_DST, output_gradient.memory()},
                        {DNNL_ARG_DIFF_WEIGHTS, weight_gradient.memory()}};
    const dnnl::memory bias = bias_ ? unbound(engine, plan.diff_weights_desc(1)) : dnnl::memory();
    if (bias_) arguments.emplace(DNNL_ARG_DIFF_BIAS, bias);
    return {output_gradient, weight_gradient, bias, Primitive(engine, plan, std::move(arguments))};
  }

  DataPass make_data_pass(const dnnl::engine& engine, const Desc& given, const WeightedPlans& plans) const {
    const auto& plan = *plans.backward_data;
    const Desc stored = result_gradient_.get_desc();
    const Staged output_gradient(engine, stored, plan.diff_dst_desc(), Staged::Use::read);
    const Staged input_gradient(engine, given, plan.diff_src_desc(), Staged::Use::written);
    return {output_gradient, input_gradient,
            Primitive(engine, plan,
                      {{DNNL_ARG_DIFF_DST, output_gradient.memory()},
                       {DNNL_ARG_WEIGHTS, weights_.prepared(0, plan.weights_desc(0))},
                       {DNNL_ARG_DIFF_SRC, input_gradient.memory()}})};
  }

  CpuWeights& weights_;
  bool bias_;
  bool relu_;
  Staged input_;
  dnnl::memory result_;
  dnnl::memory result_gradient_;
  std::optional<Primitive> forward_;
  std::optional<WeightPass> weight_pass_;
  std::optional<DataPass> data_pass_;
};

}  // namespace

std::unique_ptr<Layer> make(const Processor& processor, const Conv2dSpec& spec, const LayerRequest& request) {
  if (processor.tiles && spec.groups == 1) return make_tiled(processor, spec, request);
  const Conv2dPlanner planner{processor, spec, request};
  return std::make_unique<WeightedLayer>(processor.engine, spec, request, planner.plan());
}

std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  if (processor.tiles) return make_tiled(processor, spec, request);
  const LinearPlanner planner{processor, spec, request};
  return std::make_unique<WeightedLayer>(processor.engine, spec, request, planner.plan());
}

}  // namespace tutti::cpu
