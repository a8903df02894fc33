#pragma once
// Two-dimensional convolution by its definition.

#include "tutti/backend/layer_spec.hpp"

#include "reference/array.hpp"

namespace tutti::reference {

// An image's extents, which the loops below ask for at every product.
struct Planes {
  explicit Planes(const Shape& shape) : channels(shape[1]), height(shape[2]), width(shape[3]) {}
  std::int64_t row(std::int64_t n, std::int64_t c, std::int64_t y) const {
    return ((n * channels + c) * height + y) * width;
  }

  std::int64_t channels, height, width;
};

// Calls visit(index in the input, index in the output, index in the kernel) for every product of the layer: for one
// output after the order of the kernel, and one weight along the image's rows, where no sum waits for the one before.
template <class Visit>
void for_each_product(const Conv2dSpec& spec, const Shape& input, const Shape& output, Visit visit) {
  const Planes from(input);
  const Planes to(output);
  const std::int64_t images = output[0];
  for (std::int64_t n = 0; n < images; ++n)
    for (std::int64_t o = 0; o < to.channels; ++o)
      for (std::int64_t c = 0; c < from.channels / spec.groups; ++c)
        for (std::int64_t ky = 0; ky < spec.kernel; ++ky)
          for (std::int64_t kx = 0; kx < spec.kernel; ++kx)
            for (std::int64_t y = 0; y < to.height; ++y) {
              const std::int64_t inputs = from.channels / spec.groups;
              const std::int64_t weight = ((o * inputs + c) * spec.kernel + ky) * spec.kernel + kx;
              const std::int64_t channel = o * spec.groups / to.channels * inputs + c;
              const std::int64_t h = y * spec.stride + ky * spec.dilation - spec.padding;
              if (h < 0 || h >= from.height) continue;
              for (std::int64_t x = 0; x < to.width; ++x) {
                const std::int64_t w = x * spec.stride + kx * spec.dilation - spec.padding;
                if (w >= 0 && w < from.width) visit(from.row(n, channel, h) + w, to.row(n, o, y) + x, weight);
              }
            }
}

inline std::int64_t channel_of(const Shape& shape, std::int64_t element) {
  return element / (shape[2] * shape[3]) % shape[1];
}

inline Array forward(const Conv2dSpec& spec, const Array& input, std::span<const Array> parameters) {
  Array output(batch_shape(input, output_shape(spec, input.shape.without_first())));
  for_each_product(spec, input.shape, output.shape, [&](std::int64_t in, std::int64_t out, std::int64_t weight) {
    output[out] += input[in] * parameters[0][weight];
  });
  for (std::int64_t i = 0; i < output.shape.elements(); ++i) {
    if (spec.bias) output[i] += parameters[1][channel_of(output.shape, i)];
    if (spec.relu) output[i] = relu(output[i]);
  }
  return output;
}

inline Gradients backward(const Conv2dSpec& spec, const BackwardInputs& pass, std::span<const Array> parameters) {
  const Array gradient = masked(pass, spec.relu);
  Gradients result{Array(pass.input.shape), {}};
  for (const Array& parameter : parameters) result.parameters.emplace_back(parameter.shape);
  for_each_product(spec, pass.input.shape, gradient.shape, [&](std::int64_t in, std::int64_t out, std::int64_t weight) {
    result.input[in] += gradient[out] * parameters[0][weight];
    result.parameters[0][weight] += gradient[out] * pass.input[in];
  });
  if (!spec.bias) return result;
  for (std::int64_t i = 0; i < gradient.shape.elements(); ++i) {
    result.parameters[1][channel_of(gradient.shape, i)] += gradient[i];
  }
  return result;
}

}  // namespace tutti::reference
