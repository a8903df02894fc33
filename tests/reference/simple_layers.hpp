#pragma once
// The layers without parameters and windows by their definitions: add, global average pool, dropout, and functions of
// single values.

#include "tutti/backend/layer_spec.hpp"
#include "tutti/base/random.hpp"

#include "reference/array.hpp"

#include <cmath>
#include <stdexcept>

namespace tutti::reference {

inline Array forward(const AddSpec& spec, const ForwardInputs& pass, std::span<const Array>) {
  Array output(pass.input.shape);
  for (std::int64_t i = 0; i < output.shape.elements(); ++i) {
    output[i] = pass.input[i] + (*pass.residual)[i];
    if (spec.relu) output[i] = relu(output[i]);
  }
  return output;
}

inline Gradients backward(const AddSpec& spec, const BackwardInputs& pass, std::span<const Array>) {
  const Array gradient = masked(pass, spec.relu);
  return {gradient, {}, gradient};
}

inline Array forward(const GlobalAveragePoolSpec&, const Array& input, std::span<const Array>) {
  Array output({input.shape[0], input.shape[1], 1, 1});
  const std::int64_t pixels = input.shape[2] * input.shape[3];
  for (std::int64_t i = 0; i < input.shape.elements(); ++i)
    output[i / pixels] += input[i] / static_cast<double>(pixels);
  return output;
}

inline Gradients backward(const GlobalAveragePoolSpec&, const BackwardInputs& pass, std::span<const Array>) {
  Gradients result{Array(pass.input.shape), {}};
  const std::int64_t pixels = pass.input.shape[2] * pass.input.shape[3];
  for (std::int64_t i = 0; i < pass.input.shape.elements(); ++i) {
    result.input[i] = pass.output_gradient[i / pixels] / static_cast<double>(pixels);
  }
  return result;
}

// What each value is multiplied by.
inline Array dropout_factors(const DropoutSpec& spec, const Shape& shape, const BatchPosition& place,
                             std::uint32_t purpose) {
  Array factors(shape);
  const std::int64_t values = shape.without_first().elements();
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    const auto element = static_cast<std::uint32_t>(i % values);
    const RandomCounter counter{element / 4, place.first_position + static_cast<std::uint32_t>(i / values), place.step,
                                purpose};
    factors[i] = philox(place.seed, counter)[element % 4] < std::round(spec.rate * 0x1p32) ? 0 : 1 / (1 - spec.rate);
  }
  return factors;
}

inline Array forward(const DropoutSpec& spec, const ForwardInputs& pass, std::span<const Array>) {
  Array output = pass.input;
  if (pass.mode == LayerMode::evaluation) return output;
  const Array factors = dropout_factors(spec, output.shape, pass.place, pass.random_purpose);
  for (std::int64_t i = 0; i < output.shape.elements(); ++i) output[i] *= factors[i];
  return output;
}

inline Gradients backward(const DropoutSpec& spec, const BackwardInputs& pass, std::span<const Array>) {
  Gradients result{pass.output_gradient, {}};
  const Array factors = dropout_factors(spec, pass.input.shape, pass.place, pass.random_purpose);
  for (std::int64_t i = 0; i < pass.input.shape.elements(); ++i) result.input[i] *= factors[i];
  return result;
}

inline double value_of(const ElementwiseSpec& spec, double x) {
  switch (spec.function) {
    case Function::relu6:
      return x > 6 ? 6 : relu(x);
    case Function::gelu:
      return x * std::erfc(-x / std::sqrt(2.0)) / 2;
    case Function::silu:
      return x / (1 + std::exp(-x));
    case Function::scale:
      return x * spec.factor;
  }
  throw std::logic_error("a function without a value");
}

inline double derivative_of(const ElementwiseSpec& spec, double x) {
  const double sigmoid = 1 / (1 + std::exp(-x));
  switch (spec.function) {
    case Function::relu6:
      return x > 0 && x < 6 ? 1 : 0;
    case Function::gelu:
      return std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) / std::sqrt(8 * std::atan(1.0));
    case Function::silu:
      return sigmoid + x * sigmoid * (1 - sigmoid);
    case Function::scale:
      return spec.factor;
  }
  throw std::logic_error("a function without a derivative");
}

inline Array forward(const ElementwiseSpec& spec, const Array& input, std::span<const Array>) {
  Array output = input;
  for (double& value : output.values) value = value_of(spec, value);
  return output;
}

inline Gradients backward(const ElementwiseSpec& spec, const BackwardInputs& pass, std::span<const Array>) {
  Gradients result{pass.output_gradient, {}};
  for (std::int64_t i = 0; i < pass.input.shape.elements(); ++i) result.input[i] *= derivative_of(spec, pass.input[i]);
  return result;
}

}  // namespace tutti::reference
