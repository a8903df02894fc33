#pragma once
// The linear layer by its definition, over inputs flattened in C, H, W order.

#include "tutti/backend/layer_spec.hpp"

#include "reference/array.hpp"

namespace tutti::reference {

inline Array forward(const LinearSpec& spec, const Array& input, std::span<const Array> parameters) {
  const std::int64_t inputs = input.shape.without_first().elements();
  Array output(batch_shape(input, {spec.units}));
  for (std::int64_t out = 0; out < output.shape.elements(); ++out) {
    const std::int64_t n = out / spec.units;
    const std::int64_t unit = out % spec.units;
    for (std::int64_t i = 0; i < inputs; ++i) output[out] += input[n * inputs + i] * parameters[0][unit * inputs + i];
    if (spec.bias) output[out] += parameters[1][unit];
    if (spec.relu) output[out] = relu(output[out]);
  }
  return output;
}

inline Gradients backward(const LinearSpec& spec, const BackwardInputs& pass, std::span<const Array> parameters) {
  const std::int64_t inputs = pass.input.shape.without_first().elements();
  const Array gradient = masked(pass, spec.relu);
  Gradients result{Array(pass.input.shape), {}};
  for (const Array& parameter : parameters) result.parameters.emplace_back(parameter.shape);
  for (std::int64_t out = 0; out < gradient.shape.elements(); ++out) {
    const std::int64_t n = out / spec.units;
    const std::int64_t unit = out % spec.units;
    for (std::int64_t i = 0; i < inputs; ++i) {
      result.input[n * inputs + i] += gradient[out] * parameters[0][unit * inputs + i];
      result.parameters[0][unit * inputs + i] += gradient[out] * pass.input[n * inputs + i];
    }
    if (spec.bias) result.parameters[1][unit] += gradient[out];
  }
  return result;
}

}  // namespace tutti::reference
