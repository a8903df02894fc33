#pragma once
// What a layer computes, in plain numbers, and what follows from that for every backend alike: output shapes and
// parameter lists. A layer is added here first; the variant then makes every backend that forgets it fail to compile.

#include "tutti/base/shape.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tutti {

// y = w * x + b, then max(0, y) when relu. Weights OIHW, square kernel, equal stride and zero padding on both axes.
struct Conv2dSpec {
  std::int64_t channels = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
  bool relu = false;
  friend bool operator==(const Conv2dSpec&, const Conv2dSpec&) = default;
};

enum class Pooling { max, average };

// Windows without padding; rows and columns that fill no whole window are left out.
struct Pool2dSpec {
  Pooling pooling = Pooling::max;
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
  friend bool operator==(const Pool2dSpec&, const Pool2dSpec&) = default;
};

// y = w * flatten(x) + b, then max(0, y) when relu. Weights are units x inputs, inputs in C, H, W order.
struct LinearSpec {
  std::int64_t units = 0;
  bool bias = true;
  bool relu = false;
  friend bool operator==(const LinearSpec&, const LinearSpec&) = default;
};

using LayerSpec = std::variant<Conv2dSpec, Pool2dSpec, LinearSpec>;

enum class ParameterKind { weight, bias, scale, shift, mean, variance };
std::string_view name_of(ParameterKind kind);

struct ParameterSpec {
  ParameterKind kind;
  Shape shape;
};

// The word for the layer's type in model files and messages: "conv2d", "max-pool2d", "average-pool2d", "linear".
std::string_view type_name(const LayerSpec& spec);

// The shape of one sample after the layer, given one sample before it (C, H, W or a vector). Throws an input error
// that says what does not fit: a window larger than the image, an extent of zero or below, an image where none is
// possible. All extents of a spec are checked here.
Shape output_shape(const LayerSpec& spec, const Shape& sample);

// The parameters in the order in which weights and gradients are passed; empty for layers without any.
std::vector<ParameterSpec> parameters(const LayerSpec& spec, const Shape& sample);

// Multiply-adds of one sample's forward pass.
std::int64_t multiply_adds(const LayerSpec& spec, const Shape& sample);

}  // namespace tutti
