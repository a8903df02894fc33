#include "backend/cpu/check.hpp"
#include "backend/cpu/layers.hpp"
#include "backend/cpu/make_plan.hpp"
#include "backend/cpu/weighted_layer.hpp"

#include <string_view>

namespace tutti::cpu {
namespace {

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
