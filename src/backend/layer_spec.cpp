#include "tutti/backend/layer_spec.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

// Large enough for any network, small enough that sums of a few extents cannot overflow.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

struct Extent {
  std::string_view word;
  std::int64_t value;
  std::int64_t min;
};

void require_extent(std::string_view type, const Extent& extent) {
  if (extent.value >= extent.min && extent.value <= kMaxExtent) return;
  throw Error(ErrorSource::input, fmt::format("{}: {} is {}, but must be {} to {}", type, extent.word, extent.value,
                                              extent.min, kMaxExtent));
}

void require_values(std::string_view type, const Shape& sample) {
  const auto extents = sample.extents();
  const bool fits = std::ranges::all_of(extents, [](auto extent) { return extent >= 1 && extent <= kMaxExtent; });
  if (!extents.empty() && fits) return;
  throw Error(ErrorSource::input,
              fmt::format("{}: its input is {}, but every extent must be 1 to {}", type, sample.text(), kMaxExtent));
}

void require_image(std::string_view type, const Shape& sample) {
  if (sample.ndim() != 3) {
    throw Error(ErrorSource::input, fmt::format("{}: its input is {}, but it needs an image of channels x height x "
                                                "width; put it before the first linear layer",
                                                type, sample.text()));
  }
  require_values(type, sample);
}

struct Window {
  std::int64_t kernel;
  std::int64_t stride;
  std::int64_t padding;
};

std::int64_t positions(std::string_view type, std::int64_t extent, const Window& window, const Shape& sample) {
  const std::int64_t padded = extent + 2 * window.padding;
  if (window.kernel > padded) {
    const auto padding = window.padding == 0 ? std::string() : fmt::format(" with padding {}", window.padding);
    throw Error(ErrorSource::input, fmt::format("{}: its window of {}x{} is larger than the image of {}{}; use a "
                                                "smaller kernel or fewer layers that shrink the image",
                                                type, window.kernel, window.kernel, sample.text(), padding));
  }
  return (padded - window.kernel) / window.stride + 1;
}

Shape windowed(std::string_view type, std::int64_t channels, const Window& window, const Shape& sample) {
  return {channels, positions(type, sample[1], window, sample), positions(type, sample[2], window, sample)};
}

// The functions from here on have an overload for each spec, and none for all the others, so that a new spec does not
// compile before it has an answer of its own.

Shape output_of(const Conv2dSpec& spec, std::string_view type, const Shape& sample) {
  require_extent(type, {"channels", spec.channels, 1});
  require_extent(type, {"kernel", spec.kernel, 1});
  require_extent(type, {"stride", spec.stride, 1});
  require_extent(type, {"padding", spec.padding, 0});
  require_extent(type, {"groups", spec.groups, 1});
  require_extent(type, {"dilation", spec.dilation, 1});
  const std::int64_t window = (spec.kernel - 1) * spec.dilation + 1;
  require_extent(type, {"window", window, 1});
  if (spec.padding >= window) {
    throw Error(ErrorSource::input,
                fmt::format("{}: padding {} must be smaller than kernel {}", type, spec.padding, window));
  }
  require_image(type, sample);
  if (spec.channels % spec.groups != 0 || sample[0] % spec.groups != 0) {
    throw Error(ErrorSource::input, fmt::format("{}: {} channels of its input and {} of its output cannot both be "
                                                "divided into {} groups",
                                                type, sample[0], spec.channels, spec.groups));
  }
  return windowed(type, spec.channels, {window, spec.stride, spec.padding}, sample);
}

Shape output_of(const Pool2dSpec& spec, std::string_view type, const Shape& sample) {
  require_extent(type, {"kernel", spec.kernel, 1});
  require_extent(type, {"stride", spec.stride, 1});
  require_extent(type, {"padding", spec.padding, 0});
  require_image(type, sample);
  if (spec.padding * 2 > spec.kernel) {
    throw Error(ErrorSource::input,
                fmt::format("{}: padding {} must be at most half of kernel {}", type, spec.padding, spec.kernel));
  }
  return windowed(type, sample[0], {spec.kernel, spec.stride, spec.padding}, sample);
}

Shape output_of(const LinearSpec& spec, std::string_view type, const Shape& sample) {
  require_extent(type, {"units", spec.units, 1});
  require_values(type, sample);
  return {spec.units};
}

Shape output_of(const BatchNormSpec& spec, std::string_view type, const Shape& sample) {
  require_image(type, sample);
  if (!(spec.momentum >= 0 && spec.momentum <= 1)) {
    throw Error(ErrorSource::input, fmt::format("{}: momentum is {}, but must be 0 to 1", type, spec.momentum));
  }
  if (!(spec.epsilon > 0 && spec.epsilon <= 1)) {
    throw Error(ErrorSource::input,
                fmt::format("{}: epsilon is {}, but must be above 0 and at most 1", type, spec.epsilon));
  }
  return sample;
}

Shape output_of(const AddSpec&, std::string_view type, const Shape& sample) {
  require_values(type, sample);
  return sample;
}

Shape output_of(const GlobalAveragePoolSpec&, std::string_view type, const Shape& sample) {
  require_image(type, sample);
  return {sample[0], 1, 1};
}

Shape output_of(const DropoutSpec& spec, std::string_view type, const Shape& sample) {
  require_values(type, sample);
  if (!(spec.rate >= 0 && spec.rate < 1)) {
    throw Error(ErrorSource::input, fmt::format("{}: rate is {}, but must be at least 0 and below 1", type, spec.rate));
  }
  return sample;
}

Shape output_of(const ElementwiseSpec& spec, std::string_view type, const Shape& sample) {
  require_values(type, sample);
  if (!std::isfinite(spec.factor)) {
    throw Error(ErrorSource::input, fmt::format("{}: factor is {}, but must be finite", type, spec.factor));
  }
  return sample;
}

std::vector<ParameterSpec> weight_and_bias(const Shape& weight, bool bias) {
  std::vector<ParameterSpec> list{{ParameterKind::weight, weight}};
  if (bias) list.push_back({ParameterKind::bias, Shape{weight[0]}});
  return list;
}

std::vector<ParameterSpec> parameters_of(const Conv2dSpec& spec, const Shape& sample) {
  return weight_and_bias({spec.channels, sample[0] / spec.groups, spec.kernel, spec.kernel}, spec.bias);
}

std::vector<ParameterSpec> parameters_of(const BatchNormSpec&, const Shape& sample) {
  const Shape channels{sample[0]};
  return {{ParameterKind::scale, channels},
          {ParameterKind::shift, channels},
          {ParameterKind::mean, channels},
          {ParameterKind::variance, channels}};
}

std::vector<ParameterSpec> parameters_of(const LinearSpec& spec, const Shape& sample) {
  return weight_and_bias({spec.units, sample.elements()}, spec.bias);
}

std::vector<ParameterSpec> parameters_of(const Pool2dSpec&, const Shape&) { return {}; }
std::vector<ParameterSpec> parameters_of(const AddSpec&, const Shape&) { return {}; }
std::vector<ParameterSpec> parameters_of(const GlobalAveragePoolSpec&, const Shape&) { return {}; }
std::vector<ParameterSpec> parameters_of(const DropoutSpec&, const Shape&) { return {}; }
std::vector<ParameterSpec> parameters_of(const ElementwiseSpec&, const Shape&) { return {}; }

struct Traits {
  std::string_view type;
  LayerReads reads{};
  bool takes_residual = false;
};

Traits traits_of(const Conv2dSpec& spec) { return {"conv2d", {.input = true, .output = spec.relu}}; }
Traits traits_of(const LinearSpec& spec) { return {"linear", {.input = true, .output = spec.relu}}; }
Traits traits_of(const BatchNormSpec& spec) { return {"batch-norm", {.input = true, .output = spec.relu}, spec.add}; }
Traits traits_of(const AddSpec& spec) { return {"add", {.input = false, .output = spec.relu}, true}; }
Traits traits_of(const GlobalAveragePoolSpec&) { return {"global-average-pool"}; }
// All backends keep the places of the maxima, and which values were dropped.
Traits traits_of(const Pool2dSpec& spec) { return {spec.pooling == Pooling::max ? "max-pool2d" : "average-pool2d"}; }
Traits traits_of(const DropoutSpec&) { return {"dropout"}; }
Traits traits_of(const ElementwiseSpec& spec) {
  const auto reads = [&]() -> LayerReads {
    switch (spec.function) {
      case Function::relu6:
        return {.input = false, .output = true};
      case Function::gelu:
      case Function::silu:
        return {.input = true, .output = false};
      case Function::scale:
        break;
    }
    return {.input = false, .output = false};
  };
  return {name_of(spec.function), reads()};
}

Traits traits_of(const LayerSpec& spec) {
  return std::visit([](const auto& layer) { return traits_of(layer); }, spec);
}

}  // namespace

bool is_statistic(ParameterKind kind) { return kind == ParameterKind::mean || kind == ParameterKind::variance; }

bool takes_residual(const LayerSpec& spec) { return traits_of(spec).takes_residual; }

std::string_view type_name(const LayerSpec& spec) { return traits_of(spec).type; }

LayerReads backward_reads(const LayerSpec& spec) { return traits_of(spec).reads; }

Shape output_shape(const LayerSpec& spec, const Shape& sample) {
  return std::visit([&](const auto& layer) { return output_of(layer, traits_of(layer).type, sample); }, spec);
}

std::vector<ParameterSpec> parameters(const LayerSpec& spec, const Shape& sample) {
  output_shape(spec, sample);
  return std::visit([&](const auto& layer) { return parameters_of(layer, sample); }, spec);
}

// Each output value of a layer with weights is a product of one row of them. Layers without have far fewer operations.
// The product is computed as a shape, which throws on 64-bit overflow.
std::int64_t multiply_adds(const LayerSpec& spec, const Shape& sample) {
  const auto list = parameters(spec, sample);
  if (list.empty() || list[0].kind != ParameterKind::weight) return 0;
  const Shape& weight = list[0].shape;
  return Shape{output_shape(spec, sample).elements(), weight.elements() / weight[0]}.elements();
}

}  // namespace tutti
