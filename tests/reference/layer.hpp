#pragma once
// Any layer by its definition. A spec without its naive loops does not compile here.

#include "reference/batch_norm.hpp"
#include "reference/conv2d.hpp"
#include "reference/linear.hpp"
#include "reference/pool2d.hpp"
#include "reference/simple_layers.hpp"

namespace tutti::reference {

inline Array layer_forward(const LayerSpec& spec, const ForwardInputs& pass, std::span<const Array> parameters) {
  return std::visit(
      [&](const auto& layer) {
        if constexpr (requires { forward(layer, pass, parameters); }) {
          return forward(layer, pass, parameters);
        } else {
          return forward(layer, pass.input, parameters);
        }
      },
      spec);
}

inline Gradients layer_backward(const LayerSpec& spec, const BackwardInputs& pass, std::span<const Array> parameters) {
  return std::visit([&](const auto& layer) { return backward(layer, pass, parameters); }, spec);
}

}  // namespace tutti::reference
