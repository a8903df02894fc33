#pragma once
// Batch norm by its definition, with the residual and max(0, y) after it.

#include "tutti/backend/layer_spec.hpp"

#include "reference/array.hpp"

#include <cmath>

namespace tutti::reference {

struct Moments {
  double mean = 0;
  double variance = 0;  // over n
  double count = 0;
};

inline std::int64_t norm_channel(const Shape& shape, std::int64_t element) {
  return element / (shape[2] * shape[3]) % shape[1];
}

inline std::vector<Moments> batch_moments(const Array& input) {
  std::vector<Moments> moments(static_cast<std::size_t>(input.shape[1]));
  const auto of = [&](std::int64_t i) -> Moments& {
    return moments[static_cast<std::size_t>(norm_channel(input.shape, i))];
  };
  const double count = static_cast<double>(input.shape.elements() / input.shape[1]);
  for (std::int64_t i = 0; i < input.shape.elements(); ++i) of(i).mean += input[i] / count;
  for (std::int64_t i = 0; i < input.shape.elements(); ++i) {
    of(i).variance += (input[i] - of(i).mean) * (input[i] - of(i).mean) / count;
    of(i).count = count;
  }
  return moments;
}

inline Array forward(const BatchNormSpec& spec, const ForwardInputs& pass, std::span<const Array> parameters) {
  const auto batch = batch_moments(pass.input);
  Array output(pass.input.shape);
  for (std::int64_t i = 0; i < output.shape.elements(); ++i) {
    const std::int64_t c = norm_channel(output.shape, i);
    const bool training = pass.mode == LayerMode::training;
    const double mean = training ? batch[static_cast<std::size_t>(c)].mean : parameters[2][c];
    const double variance = training ? batch[static_cast<std::size_t>(c)].variance : parameters[3][c];
    const double normal = (pass.input[i] - mean) / std::sqrt(variance + spec.epsilon);
    output[i] = normal * parameters[0][c] + parameters[1][c];
    if (spec.add) output[i] += (*pass.residual)[i];
    if (spec.relu) output[i] = relu(output[i]);
  }
  return output;
}

inline Gradients backward(const BatchNormSpec& spec, const BackwardInputs& pass, std::span<const Array> parameters) {
  const Array gradient = masked(pass, spec.relu);
  const auto batch = batch_moments(pass.input);
  const auto inverse = [&](std::int64_t c) {
    return 1 / std::sqrt(batch[static_cast<std::size_t>(c)].variance + spec.epsilon);
  };
  const auto normal = [&](std::int64_t i) {
    const std::int64_t c = norm_channel(pass.input.shape, i);
    return (pass.input[i] - batch[static_cast<std::size_t>(c)].mean) * inverse(c);
  };
  Gradients result{Array(pass.input.shape), std::vector<Array>(4, Array(parameters[0].shape))};
  Array& scale = result.parameters[0];
  Array& shift = result.parameters[1];
  for (std::int64_t i = 0; i < gradient.shape.elements(); ++i) {
    const std::int64_t c = norm_channel(gradient.shape, i);
    scale[c] += gradient[i] * normal(i);
    shift[c] += gradient[i];
  }
  for (std::int64_t c = 0; c < scale.shape[0]; ++c) {
    const Moments& moments = batch[static_cast<std::size_t>(c)];
    const double unbiased = moments.count > 1 ? moments.count / (moments.count - 1) : 1;
    result.parameters[2][c] = moments.mean * pass.sample_fraction;
    result.parameters[3][c] = moments.variance * unbiased * pass.sample_fraction;
  }
  for (std::int64_t i = 0; i < gradient.shape.elements(); ++i) {
    const std::int64_t c = norm_channel(gradient.shape, i);
    const double count = batch[static_cast<std::size_t>(c)].count;
    result.input[i] = parameters[0][c] * inverse(c) * (gradient[i] - shift[c] / count - normal(i) * scale[c] / count);
  }
  if (spec.add) result.residual = gradient;
  return result;
}

}  // namespace tutti::reference
