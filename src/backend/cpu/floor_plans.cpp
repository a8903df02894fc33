#include "backend/cpu/floor_plans.hpp"

#include "backend/cpu/make_plan.hpp"
#include "backend/cpu/primitive.hpp"

#include <algorithm>
#include <variant>

namespace tutti::cpu {
namespace {

using dnnl::memory;

constexpr auto kTraining = dnnl::prop_kind::forward_training;

struct Window {
  memory::dims kernel;
  memory::dims strides;
  memory::dims padding;
};

class FloorPlanner {
 public:
  FloorPlanner(const dnnl::engine& engine, Type type, const FloorLayer& layer)
      : engine_(engine),
        type_(type),
        input_(dims_of(layer.input)),
        output_(dims_of(output_shape(layer.spec, layer.input.without_first()).batch_of(layer.input[0]))),
        wants_input_gradient_(layer.wants_input_gradient) {}

  std::vector<FloorPasses> plan(const Conv2dSpec& spec) const;
  std::vector<FloorPasses> plan(const LinearSpec& spec) const;
  std::vector<FloorPasses> plan(const BatchNormSpec& spec) const;
  std::vector<FloorPasses> plan(const Pool2dSpec& spec) const {
    const auto algorithm =
        spec.pooling == Pooling::max ? dnnl::algorithm::pooling_max : dnnl::algorithm::pooling_avg_include_padding;
    return plan_pooling(algorithm, {.kernel = {spec.kernel, spec.kernel},
                                    .strides = {spec.stride, spec.stride},
                                    .padding = {spec.padding, spec.padding}});
  }
  std::vector<FloorPasses> plan(const GlobalAveragePoolSpec&) const {
    const memory::dims image{input_[2], input_[3]};
    return plan_pooling(dnnl::algorithm::pooling_avg_include_padding,
                        {.kernel = image, .strides = image, .padding = {0, 0}});
  }
  // The library has no pass of its own for these, or none that is needed beside others.
  std::vector<FloorPasses> plan(const AddSpec&) const { return {}; }
  std::vector<FloorPasses> plan(const DropoutSpec&) const { return {}; }

 private:
  PlanContext context(bool relu = false) const { return {engine_, attributes(relu)}; }
  std::vector<FloorPasses> plan_pooling(dnnl::algorithm algorithm, const Window& window) const;
  std::vector<Desc> layouts() const;

  const dnnl::engine& engine_;
  Type type_;
  memory::dims input_;
  memory::dims output_;
  bool wants_input_gradient_;
};

std::vector<Desc> FloorPlanner::layouts() const {
  if (input_.size() != 4) return {plain(input_, type_)};
  std::vector<Desc> layouts;
  for (const Tag tag : {Tag::nChw16c, Tag::nChw8c, Tag::nhwc}) layouts.emplace_back(input_, type_, tag);
  return layouts;
}

std::vector<FloorPasses> FloorPlanner::plan(const Conv2dSpec& spec) const {
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const memory::dims window{spec.channels, input_[1], spec.kernel, spec.kernel};
  const memory::dims strides{spec.stride, spec.stride};
  const memory::dims padding{spec.padding, spec.padding};
  const Desc weights = any(window, type_);
  const Desc bias = spec.bias ? plain({spec.channels}) : Desc();
  std::vector<FloorPasses> found;
  for (const bool open : {true, false}) {
    const Desc input = open ? any(input_, type_) : channels_last(input_, type_);
    const Desc output = open ? any(output_, type_) : channels_last(output_, type_);
    const auto forward = make_plan<dnnl::convolution_forward>(context(spec.relu), kTraining, kDirect, input, weights,
                                                              bias, output, strides, padding, padding);
    FloorPasses& passes = found.emplace_back(FloorPasses{{&PrimitiveTimes::forward, forward}});
    if (wants_input_gradient_) {
      passes.push_back({&PrimitiveTimes::backward_data,
                        make_backward_plan<dnnl::convolution_backward_data>(context(), forward, kDirect, input, weights,
                                                                            output, strides, padding, padding)});
    }
    passes.push_back({&PrimitiveTimes::backward_weights, make_backward_plan<dnnl::convolution_backward_weights>(
                                                             context(), forward, kDirect, input, any(window, Type::f32),
                                                             bias, output, strides, padding, padding)});
  }
  return found;
}

std::vector<FloorPasses> FloorPlanner::plan(const LinearSpec& spec) const {
  memory::dims matrix = input_;
  matrix[0] = spec.units;
  const Desc input = any(input_, type_);
  const Desc weights = any(matrix, type_);
  const Desc bias = spec.bias ? plain({spec.units}) : Desc();
  const Desc output = any(output_, type_);
  const auto forward =
      make_plan<dnnl::inner_product_forward>(context(spec.relu), kTraining, input, weights, bias, output);
  FloorPasses passes{{&PrimitiveTimes::forward, forward}};
  if (wants_input_gradient_) {
    passes.push_back({&PrimitiveTimes::backward_data, make_backward_plan<dnnl::inner_product_backward_data>(
                                                          context(), forward, input, weights, output)});
  }
  passes.push_back(
      {&PrimitiveTimes::backward_weights, make_backward_plan<dnnl::inner_product_backward_weights>(
                                              context(), forward, input, any(matrix, Type::f32), bias, output)});
  return {passes};
}

std::vector<FloorPasses> FloorPlanner::plan(const BatchNormSpec& spec) const {
  using dnnl::normalization_flags;
  constexpr auto kEpsilon = static_cast<float>(BatchNormSpec::kEpsilon);
  auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
  if (spec.relu) flags = flags | normalization_flags::fuse_norm_relu;
  std::vector<FloorPasses> found;
  for (const Desc& values : layouts()) {
    const OnlyIn3 same{values};
    const auto forward =
        make_plan<dnnl::batch_normalization_forward>(context(), kTraining, values, same, kEpsilon, flags);
    found.push_back({{&PrimitiveTimes::forward, forward},
                     {&PrimitiveTimes::backward_data,
                      make_backward_plan<dnnl::batch_normalization_backward>(
                          context(), forward, dnnl::prop_kind::backward, values, same, values, kEpsilon, flags)}});
  }
  return found;
}

std::vector<FloorPasses> FloorPlanner::plan_pooling(dnnl::algorithm algorithm, const Window& window) const {
  const memory::dims none_left_out{0, 0};
  const OnlyIn3 spacing{none_left_out};
  std::vector<FloorPasses> found;
  for (const Desc& values : layouts()) {
    const auto forward =
        make_plan<dnnl::pooling_forward>(context(), kTraining, algorithm, values, any(output_, type_), window.strides,
                                         window.kernel, spacing, window.padding, window.padding);
    FloorPasses& passes = found.emplace_back(FloorPasses{{&PrimitiveTimes::forward, forward}});
    if (!wants_input_gradient_) continue;
    passes.push_back({&PrimitiveTimes::backward_data,
                      make_backward_plan<dnnl::pooling_backward>(context(), forward, algorithm, values,
                                                                 forward.dst_desc(), window.strides, window.kernel,
                                                                 spacing, window.padding, window.padding)});
  }
  return found;
}

}  // namespace

std::vector<FloorPasses> plan_floor(const dnnl::engine& engine, Type type, const FloorLayer& layer) {
  const FloorPlanner planner(engine, type, layer);
  std::vector<FloorPasses> found = std::visit([&](const auto& spec) { return planner.plan(spec); }, layer.spec);
  // Reference loops take hundreds of times longer; they are tried where there is nothing else.
  const auto is_slow = [](const FloorPasses& passes) {
    return !std::ranges::all_of(passes, [](const FloorPass& pass) { return is_compiled(pass.plan); });
  };
  if (!std::ranges::all_of(found, is_slow)) std::erase_if(found, is_slow);
  return found;
}

}  // namespace tutti::cpu
