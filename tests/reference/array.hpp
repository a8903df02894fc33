#pragma once
// Arrays of doubles in canonical order, for naive loops that are compared with every backend. Slow and
// obvious.

#include "tutti/backend/layer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::reference {

struct Array {
  Shape shape;
  std::vector<double> values;

  explicit Array(const Shape& extents) : shape(extents), values(static_cast<std::size_t>(extents.elements())) {}
  Array(const Shape& extents, std::span<const float> floats) : shape(extents), values(floats.begin(), floats.end()) {}

  double& operator[](std::int64_t i) { return values.at(static_cast<std::size_t>(i)); }
  double operator[](std::int64_t i) const { return values.at(static_cast<std::size_t>(i)); }
};

// What a layer's forward pass is given. Most layers look at the input alone.
struct ForwardInputs {
  const Array& input;
  const Array* residual = nullptr;
  LayerMode mode = LayerMode::training;
  BatchPosition place{};
  std::uint32_t random_purpose = 0;
};

// What a layer's backward pass gives.
struct Gradients {
  Array input;
  std::vector<Array> parameters;  // of batch norm: its statistics times the share too
  std::optional<Array> residual{};
};

// What a layer's backward pass is given: the input and output of its forward pass, and the gradient of the
// output.
struct BackwardInputs {
  const Array& input;
  const Array& output;
  const Array& output_gradient;
  BatchPosition place{};
  std::uint32_t random_purpose = 0;
  double sample_fraction = 1;
};

inline double relu(double value) { return value > 0 ? value : 0; }

// The gradient before max(0, y): that after it, where y was positive.
inline Array masked(const BackwardInputs& pass, bool relu) {
  Array gradient = pass.output_gradient;
  if (!relu) return gradient;
  for (std::size_t i = 0; i < gradient.values.size(); ++i) {
    if (!(pass.output.values[i] > 0)) gradient.values[i] = 0;
  }
  return gradient;
}

// The batch shape of a layer's output.
inline Shape batch_shape(const Array& input, const Shape& output_sample) {
  return output_sample.batch_of(input.shape[0]);
}

}  // namespace tutti::reference
