#pragma once
// An example of each layer type. Lists of test cases are made from these, so that none lacks a type: without an example
// of a new one, they do not compile.

#include "tutti/backend/layer_spec.hpp"

#include <cstddef>
#include <utility>
#include <variant>
#include <vector>

namespace tutti::testing_support {

// No value is the one that a model file may leave out.
inline LayerSpec example_of(const Conv2dSpec&) { return Conv2dSpec{4, 3, 2, 1, false, true, 2, 3}; }
inline LayerSpec example_of(const Pool2dSpec&) { return Pool2dSpec{Pooling::average, 3, 2, 1}; }
inline LayerSpec example_of(const LinearSpec&) { return LinearSpec{7, false, true}; }
inline LayerSpec example_of(const BatchNormSpec&) { return BatchNormSpec{true, true, 0.4, 1e-12}; }
inline LayerSpec example_of(const AddSpec&) { return AddSpec{true}; }
inline LayerSpec example_of(const GlobalAveragePoolSpec&) { return GlobalAveragePoolSpec{}; }
inline LayerSpec example_of(const DropoutSpec&) { return DropoutSpec{0.125}; }
inline LayerSpec example_of(const ElementwiseSpec&) { return ElementwiseSpec{Function::scale, 1.0 / 9}; }

// Every function.
inline std::vector<ElementwiseSpec> function_examples() {
  std::vector<ElementwiseSpec> all;
  for (std::size_t i = 0; i < enum_names(Function{}).size(); ++i) {
    const auto function = static_cast<Function>(i);
    all.push_back({function, function == Function::scale ? -0.3 : 1});
  }
  return all;
}

inline bool has_jumping_gradient(const LayerSpec& spec) {
  const auto* const layer = std::get_if<ElementwiseSpec>(&spec);
  return layer != nullptr && layer->function == Function::relu6;
}

// Those of whose gradients finite differences come close.
inline std::vector<ElementwiseSpec> smooth_function_examples() {
  std::vector<ElementwiseSpec> smooth = function_examples();
  std::erase_if(smooth, has_jumping_gradient);
  return smooth;
}

// Every layer type and every function.
inline std::vector<LayerSpec> layer_examples() {
  std::vector<LayerSpec> all = []<std::size_t... indices>(std::index_sequence<indices...>) {
    return std::vector<LayerSpec>{example_of(std::variant_alternative_t<indices, LayerSpec>())...};
  }
  (std::make_index_sequence<std::variant_size_v<LayerSpec>>());
  for (const ElementwiseSpec& function : function_examples()) all.push_back(function);
  return all;
}

// Those whose output has the shape of their input.
inline std::vector<LayerSpec> layers_that_keep_shapes() {
  const Shape shape{20, 24, 24};
  std::vector<LayerSpec> all = layer_examples();
  std::erase_if(all, [&](const LayerSpec& spec) { return output_shape(spec, shape) != shape; });
  return all;
}

}  // namespace tutti::testing_support
