#pragma once
// Pooling by its definition. The gradient of a greatest value goes to the first of equals.

#include "tutti/backend/layer_spec.hpp"

#include "reference/array.hpp"

namespace tutti::reference {

struct PoolWindow {
  std::vector<std::int64_t> elements;  // of the input, without padding
  std::int64_t greatest = 0;           // the first of the greatest among them
  bool tied = false;                   // whether there is another as great
};

// Calls visit(window, output element) for every window.
template <class Visit>
void for_each_window(const Pool2dSpec& spec, const Array& input, const Shape& output, Visit visit) {
  const std::int64_t height = input.shape[2];
  const std::int64_t width = input.shape[3];
  for (std::int64_t out = 0; out < output.elements(); ++out) {
    const std::int64_t plane = out / (output[2] * output[3]);
    const std::int64_t top = out / output[3] % output[2] * spec.stride - spec.padding;
    const std::int64_t left = out % output[3] * spec.stride - spec.padding;
    PoolWindow window;
    for (std::int64_t h = top; h < top + spec.kernel; ++h)
      for (std::int64_t w = left; w < left + spec.kernel; ++w) {
        if (h < 0 || h >= height || w < 0 || w >= width) continue;
        window.elements.push_back((plane * height + h) * width + w);
      }
    window.greatest = window.elements.front();
    for (const std::int64_t element : window.elements) {
      if (input[element] > input[window.greatest]) window.greatest = element;
    }
    for (const std::int64_t element : window.elements) {
      if (element != window.greatest && input[element] == input[window.greatest]) window.tied = true;
    }
    visit(window, out);
  }
}

inline Array forward(const Pool2dSpec& spec, const Array& input, std::span<const Array>) {
  Array output(batch_shape(input, output_shape(spec, input.shape.without_first())));
  for_each_window(spec, input, output.shape, [&](const PoolWindow& window, std::int64_t out) {
    if (spec.pooling == Pooling::max) {
      output[out] = input[window.greatest];
    } else {
      for (const std::int64_t in : window.elements)
        output[out] += input[in] / static_cast<double>(spec.kernel * spec.kernel);
    }
  });
  return output;
}

inline Gradients backward(const Pool2dSpec& spec, const BackwardInputs& pass, std::span<const Array>) {
  Gradients result{Array(pass.input.shape), {}};
  for_each_window(spec, pass.input, pass.output.shape, [&](const PoolWindow& window, std::int64_t out) {
    const double gradient = pass.output_gradient[out];
    if (spec.pooling == Pooling::max) {
      result.input[window.greatest] += gradient;
    } else {
      for (const std::int64_t in : window.elements) {
        result.input[in] += gradient / static_cast<double>(spec.kernel * spec.kernel);
      }
    }
  });
  return result;
}

// The elements of the input whose gradient depends on which of equals a backend takes for the greatest.
inline std::vector<bool> undecided(const Pool2dSpec& spec, const Array& input, const Shape& output) {
  std::vector<bool> result(input.values.size());
  if (spec.pooling == Pooling::average) return result;
  for_each_window(spec, input, output, [&](const PoolWindow& window, std::int64_t) {
    if (!window.tied) return;
    for (const std::int64_t in : window.elements) {
      if (input[in] == input[window.greatest]) result[static_cast<std::size_t>(in)] = true;
    }
  });
  return result;
}

}  // namespace tutti::reference
