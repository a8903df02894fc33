#include "backend/cpu/weighted_layer.hpp"

#include "backend/cpu/channel_kernels.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/library.hpp"
#include "backend/cpu/primitive.hpp"

#include <string_view>

namespace tutti::cpu {
namespace {

Arguments forward_arguments(const WeightedLayerParts& parts, CpuWeights& weights, const dnnl::memory& input,
                            const dnnl::memory& output) {
  Arguments arguments{{DNNL_ARG_SRC, input},
                      {DNNL_ARG_WEIGHTS, weights.prepared(0, parts.plans.forward.weights_desc(0))},
                      {DNNL_ARG_DST, output}};
  if (parts.bias) arguments.emplace(DNNL_ARG_BIAS, weights.prepared(1, parts.plans.forward.weights_desc(1)));
  return arguments;
}

std::function<void(CpuStream&)> running(Primitive primitive) {
  return [primitive = std::make_shared<Primitive>(std::move(primitive))](CpuStream& stream) { primitive->run(stream); };
}

const float* canonical(CpuWeights& weights, std::size_t index, const dnnl::memory::dims& dims) {
  return static_cast<const float*>(weights.prepared(index, plain(dims)).get_data_handle());
}

bool masks_itself(const WeightedLayerParts& parts) { return parts.plans.tiled.mask && !parts.plans.backward_data; }

float* floats(const dnnl::memory& memory) { return static_cast<float*>(memory.get_data_handle()); }

// Weights are seen as units x channels x rows x columns, so that their order is canonical whatever the layout
// of the image before them.
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

  WeightedPlans plan(const Desc& given, const LayerRequest& request) const {
    const Forward chosen = choose_forward(given, request.mode);
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

  // Products of blocks compile the one kernel that they need; the general product, when it is first used, all that
  // anybody might, which takes longer than the steps of a small network.
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
  Desc output_;  // f32 always: logits are too precious for less
  bool relu_;
};

}  // namespace

WeightedLayer::WeightedLayer(const dnnl::engine& engine, const WeightedLayerParts& parts, CpuWeights& weights)
    : output_(activation_of(parts.output, parts.plans.forward.dst_desc())),
      input_(engine, desc_of(parts.input), parts.plans.forward.src_desc()),
      result_(engine, parts.plans.forward.dst_desc()),
      result_gradient_(engine, parts.plans.forward.dst_desc()),
      forward_(make_forward(engine, parts, weights)),
      reads_output_(parts.relu && parts.plans.backward_weights) {
  if (!parts.plans.backward_weights) return;
  if (parts.relu && !masks_itself(parts)) mask_.emplace(engine, result_.memory(), result_gradient_.memory());
  weight_pass_ = make_weight_pass(engine, parts);
  if (parts.plans.backward_data) data_pass_ = make_data_pass(engine, parts, weights);
}

WeightedLayer::Run WeightedLayer::make_forward(const dnnl::engine& engine, const WeightedLayerParts& parts,
                                               CpuWeights& weights) const {
  const auto& plan = parts.plans.forward;
  const dnnl::memory input = input_.memory();
  const dnnl::memory output = result_.memory();
  const auto tiled = parts.plans.tiled.forward;
  if (!tiled) return running(Primitive(engine, plan, forward_arguments(parts, weights, input, output)));
  const float* const windows = canonical(weights, 0, dims_of(plan.weights_desc(0)));
  const float* const bias = parts.bias ? canonical(weights, 1, dims_of(plan.weights_desc(1))) : nullptr;
  return [=, relu = parts.relu](CpuStream& stream) {
    tiled->forward(stream, {input.get_data_handle(), windows, bias, output.get_data_handle(), relu});
  };
}

WeightedLayer::WeightPass WeightedLayer::make_weight_pass(const dnnl::engine& engine,
                                                          const WeightedLayerParts& parts) const {
  const auto& plan = *parts.plans.backward_weights;
  const auto tiled = parts.plans.tiled.backward_weights;
  const Desc kept = result_gradient_.memory().get_desc();
  const Desc canonical_weight = plain(dims_of(plan.diff_weights_desc(0)));
  const StagedInput output_gradient(engine, kept, tiled ? kept : plan.diff_dst_desc());
  const StagedOutput weight_gradient(engine, canonical_weight, tiled ? canonical_weight : plan.diff_weights_desc(0));

  std::optional<Placed> bias_gradient;
  if (parts.bias) bias_gradient.emplace(engine, plan.diff_weights_desc(1));
  if (tiled) {
    return {output_gradient, weight_gradient, bias_gradient,
            [=, masks = parts.relu && masks_itself(parts), input = input_.memory(), output = result_.memory(),
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

WeightedLayer::DataPass WeightedLayer::make_data_pass(const dnnl::engine& engine, const WeightedLayerParts& parts,
                                                      CpuWeights& weights) const {
  const auto& plan = *parts.plans.backward_data;
  if (const auto tiled = parts.plans.tiled.backward_data) {
    const Desc kept = result_gradient_.memory().get_desc();
    const StagedInput output_gradient(engine, kept, kept);
    const StagedOutput input_gradient(engine, desc_of(parts.input), parts.plans.forward.src_desc());
    const float* const windows = canonical(weights, 0, dims_of(plan.weights_desc(0)));
    return {output_gradient, input_gradient,
            [=, from = output_gradient.memory(), to = input_gradient.memory()](CpuStream& stream) {
              tiled->backward_data(stream, {from.get_data_handle(), windows, to.get_data_handle()});
            }};
  }
  const StagedInput output_gradient(engine, result_gradient_.memory().get_desc(), plan.diff_dst_desc());
  const StagedOutput input_gradient(engine, desc_of(parts.input), plan.diff_src_desc());
  return {output_gradient, input_gradient,
          running(Primitive(engine, plan,
                            {{DNNL_ARG_DIFF_DST, output_gradient.memory()},
                             {DNNL_ARG_WEIGHTS, weights.prepared(0, plan.weights_desc(0))},
                             {DNNL_ARG_DIFF_SRC, input_gradient.memory()}}))};
}

void WeightedLayer::forward(Stream& stream, const LayerForward& pass) {
  CpuStream& ours = cpu_stream(stream);
  input_.load(ours, pass.input);
  result_.place(pass.output);
  forward_(ours);
}

void WeightedLayer::backward(Stream& stream, const LayerBackward& pass) {
  CpuStream& ours = cpu_stream(stream);
  if (!weight_pass_) throw Error(ErrorSource::internal, "a plan made for evaluation is asked for gradients");
  const std::size_t expected = weight_pass_->bias_gradient ? 2 : 1;
  if (pass.gradients.size() != expected) {
    throw Error(ErrorSource::internal, fmt::format("a layer with {} parameters is given {} tensors for their gradients",
                                                   expected, pass.gradients.size()));
  }
  sum_output_gradients(pass, result_gradient_.memory().get_desc());
  result_gradient_.place(pass.output_gradients[0]);
  if (reads_output_) result_.place(pass.output);
  if (mask_) mask_->run(ours);

  weight_pass_->output_gradient.load(ours, pass.output_gradients[0]);
  weight_pass_->weight_gradient.place(pass.gradients[0].data);
  if (weight_pass_->bias_gradient) weight_pass_->bias_gradient->place(pass.gradients[1].data);
  weight_pass_->run(ours);
  weight_pass_->weight_gradient.deliver(ours);

  if (!data_pass_) return;
  data_pass_->output_gradient.load(ours, pass.output_gradients[0]);
  data_pass_->input_gradient.place(pass.input_gradient);
  data_pass_->run(ours);
  data_pass_->input_gradient.deliver(ours);
}

std::unique_ptr<Layer> make(const Processor& processor, const LinearSpec& spec, const LayerRequest& request) {
  const Shape& input = request.input.shape;
  const Shape output = output_shape(spec, input.without_first()).batch_of(input[0]);
  return check([&] { return fmt::format("making linear on {}", input.text()); },
               [&] {
                 const auto plans = LinearPlanner(processor, spec, input).plan(desc_of(request.input), request);
                 return std::make_unique<WeightedLayer>(
                     processor.engine, WeightedLayerParts{plans, request.input, output, spec.bias, spec.relu},
                     weights_of(spec, request));
               });
}

}  // namespace tutti::cpu
