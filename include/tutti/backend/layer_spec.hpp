#pragma once
// Backend-independent descriptions of layers, with their output shapes and parameters. A new layer starts here: until
// each function of this header has an answer for it and each backend a plan of it, nothing compiles.

#include "tutti/base/enum_names.hpp"
#include "tutti/base/shape.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tutti {

// y = w * x + b, then max(0, y) when relu. Weights OIHW, square kernel, equal stride, zero padding and dilation on both
// axes. The channels of both sides are divided into groups, each computed from its own: then I counts those of a group.
struct Conv2dSpec {
  std::int64_t channels = 0;
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
  bool relu = false;
  std::int64_t groups = 1;
  std::int64_t dilation = 1;
  friend bool operator==(const Conv2dSpec&, const Conv2dSpec&) = default;
};

enum class Pooling { max, average };

// Rows and columns that do not fill a window are ignored, as with PyTorch's ceil_mode=False. Padding counts as zeros in
// averages and is ignored by maxima.
struct Pool2dSpec {
  Pooling pooling = Pooling::max;
  std::int64_t kernel = 0;
  std::int64_t stride = 0;
  std::int64_t padding = 0;
  friend bool operator==(const Pool2dSpec&, const Pool2dSpec&) = default;
};

// y = w * flatten(x) + b, then max(0, y) when relu. Weights are units x inputs, inputs in C, H, W order.
struct LinearSpec {
  std::int64_t units = 0;
  bool bias = true;
  bool relu = false;
  friend bool operator==(const LinearSpec&, const LinearSpec&) = default;
};

// y = (x - mean) / sqrt(variance + epsilon) * scale + shift for each channel, then + residual when add, then max(0, y)
// when relu. In training mean and variance are the batch's (variance over n), or those of the global batch
// (WholeBatchSum); in evaluation the running ones.
struct BatchNormSpec {
  bool add = false;
  bool relu = false;
  double momentum = 0.1;  // weight of the batch statistics, as in PyTorch
  double epsilon = 1e-5;
  friend bool operator==(const BatchNormSpec&, const BatchNormSpec&) = default;
};

// y = x + residual, then max(0, y) when relu.
struct AddSpec {
  bool relu = false;
  friend bool operator==(const AddSpec&, const AddSpec&) = default;
};

// The mean of each channel: C, H, W becomes C, 1, 1.
struct GlobalAveragePoolSpec {
  friend bool operator==(const GlobalAveragePoolSpec&, const GlobalAveragePoolSpec&) = default;
};

// In training each value becomes 0 with probability `rate`, and is divided by 1 - rate otherwise.
struct DropoutSpec {
  double rate = 0.5;
  friend bool operator==(const DropoutSpec&, const DropoutSpec&) = default;
};

enum class Function { relu6, gelu, silu, scale };
constexpr std::array<std::string_view, 4> enum_names(Function) { return {"relu6", "gelu", "silu", "scale"}; }

// min(max(0, x), 6) for relu6, x * P(a standard normal value < x) for gelu, x / (1 + exp(-x)) for silu, and factor * x
// for scale.
struct ElementwiseSpec {
  Function function = Function::gelu;
  double factor = 1;
  friend bool operator==(const ElementwiseSpec&, const ElementwiseSpec&) = default;
};

using LayerSpec = std::variant<Conv2dSpec, Pool2dSpec, LinearSpec, BatchNormSpec, AddSpec, GlobalAveragePoolSpec,
                               DropoutSpec, ElementwiseSpec>;

enum class ParameterKind { weight, bias, scale, shift, mean, variance };
constexpr std::array<std::string_view, 6> enum_names(ParameterKind) {
  return {"weight", "bias", "scale", "shift", "mean", "variance"};
}
// True for mean and variance: running statistics, which optimizers do not update.
bool is_statistic(ParameterKind kind);

struct ParameterSpec {
  ParameterKind kind;
  Shape shape;
};

// The layer's type in model files and messages: "max-pool2d", or the name of its function.
std::string_view type_name(const LayerSpec& spec);

// Whether the layer adds a second input, of the first one's shape.
bool takes_residual(const LayerSpec& spec);

// The shape of one sample after the layer, given one sample before it (C, H, W or a vector). Throws an input error
// if the spec is invalid or does not fit the sample, such as a window larger than the image. All extents of a spec are
// checked here.
Shape output_shape(const LayerSpec& spec, const Shape& sample);

// The parameters in the order in which weights and gradients are passed; empty for layers without any. For batch
// norm: scale, shift, mean, variance.
std::vector<ParameterSpec> parameters(const LayerSpec& spec, const Shape& sample);

// Multiply-adds of one sample's forward pass.
std::int64_t multiply_adds(const LayerSpec& spec, const Shape& sample);

// The activations of the forward pass that the backward pass reads.
struct LayerReads {
  bool input = false;
  bool output = false;
};
// Where the gradient follows from the output, as ReLU's does, the input is not read. A backend's layer may read less if
// it keeps a mask instead. Memory is estimated from this.
LayerReads backward_reads(const LayerSpec& spec);

}  // namespace tutti
