#include "tutti/backend/layer_spec.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti {
namespace {

// Large enough for any network, small enough that sums of a few extents cannot overflow.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 30;

struct Extent {
  std::string_view word;
  std::int64_t value;
  std::int64_t least;
};

void require_extent(std::string_view type, const Extent& extent) {
  if (extent.value >= extent.least && extent.value <= kMaxExtent) return;
  throw Error(ErrorSource::input, fmt::format("{}: {} is {}, but must be {} to {}", type, extent.word, extent.value,
                                              extent.least, kMaxExtent));
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
  if (spec.padding >= spec.kernel) {
    throw Error(ErrorSource::input,
                fmt::format("{}: padding {} must be smaller than kernel {}", type, spec.padding, spec.kernel));
  }
  require_image(type, sample);
  return windowed(type, spec.channels, {spec.kernel, spec.stride, spec.padding}, sample);
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

Shape output_of(const BatchNormSpec&, std::string_view type, const Shape& sample) {
  require_image(type, sample);
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

std::vector<ParameterSpec> weight_and_bias(const Shape& weight, bool bias) {
  std::vector<ParameterSpec> list{{ParameterKind::weight, weight}};
  if (bias) list.push_back({ParameterKind::bias, Shape{weight[0]}});
  return list;
}

std::vector<ParameterSpec> parameters_of(const Conv2dSpec& spec, const Shape& sample) {
  return weight_and_bias({spec.channels, sample[0], spec.kernel, spec.kernel}, spec.bias);
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

// Products are computed as shapes, which throw on 64-bit overflow.
std::int64_t multiply_adds_of(const Conv2dSpec& spec, const Shape& sample, const Shape& output) {
  return Shape{output.elements(), sample[0], spec.kernel, spec.kernel}.elements();
}

std::int64_t multiply_adds_of(const LinearSpec& spec, const Shape& sample, const Shape&) {
  return Shape{spec.units, sample.elements()}.elements();
}

// Far fewer than a convolution's.
std::int64_t multiply_adds_of(const Pool2dSpec&, const Shape&, const Shape&) { return 0; }
std::int64_t multiply_adds_of(const BatchNormSpec&, const Shape&, const Shape&) { return 0; }
std::int64_t multiply_adds_of(const AddSpec&, const Shape&, const Shape&) { return 0; }
std::int64_t multiply_adds_of(const GlobalAveragePoolSpec&, const Shape&, const Shape&) { return 0; }
std::int64_t multiply_adds_of(const DropoutSpec&, const Shape&, const Shape&) { return 0; }

bool adds_residual(const Conv2dSpec&) { return false; }
bool adds_residual(const Pool2dSpec&) { return false; }
bool adds_residual(const LinearSpec&) { return false; }
bool adds_residual(const BatchNormSpec& spec) { return spec.add; }
bool adds_residual(const AddSpec&) { return true; }
bool adds_residual(const GlobalAveragePoolSpec&) { return false; }
bool adds_residual(const DropoutSpec&) { return false; }

LayerReads reads_of(const Conv2dSpec& spec) { return {.input = true, .output = spec.relu}; }
LayerReads reads_of(const LinearSpec& spec) { return {.input = true, .output = spec.relu}; }
LayerReads reads_of(const BatchNormSpec& spec) { return {.input = true, .output = spec.relu}; }
LayerReads reads_of(const AddSpec& spec) { return {.input = false, .output = spec.relu}; }
LayerReads reads_of(const GlobalAveragePoolSpec&) { return {}; }
// All backends keep the places of the maxima, and which values were dropped.
LayerReads reads_of(const Pool2dSpec&) { return {}; }
LayerReads reads_of(const DropoutSpec&) { return {}; }

std::string_view type_of(const Conv2dSpec&) { return "conv2d"; }

std::string_view type_of(const Pool2dSpec& spec) {
  return spec.pooling == Pooling::max ? "max-pool2d" : "average-pool2d";
}

std::string_view type_of(const LinearSpec&) { return "linear"; }
std::string_view type_of(const BatchNormSpec&) { return "batch-norm"; }
std::string_view type_of(const AddSpec&) { return "add"; }
std::string_view type_of(const GlobalAveragePoolSpec&) { return "global-average-pool"; }
std::string_view type_of(const DropoutSpec&) { return "dropout"; }

}  // namespace

bool is_statistic(ParameterKind kind) { return kind == ParameterKind::mean || kind == ParameterKind::variance; }

bool takes_residual(const LayerSpec& spec) {
  return std::visit([](const auto& layer) { return adds_residual(layer); }, spec);
}

std::string_view type_name(const LayerSpec& spec) {
  return std::visit([](const auto& layer) { return type_of(layer); }, spec);
}

Shape output_shape(const LayerSpec& spec, const Shape& sample) {
  return std::visit([&](const auto& layer) { return output_of(layer, type_of(layer), sample); }, spec);
}

std::vector<ParameterSpec> parameters(const LayerSpec& spec, const Shape& sample) {
  output_shape(spec, sample);
  return std::visit([&](const auto& layer) { return parameters_of(layer, sample); }, spec);
}

std::int64_t multiply_adds(const LayerSpec& spec, const Shape& sample) {
  const Shape output = output_shape(spec, sample);
  return std::visit([&](const auto& layer) { return multiply_adds_of(layer, sample, output); }, spec);
}

LayerReads backward_reads(const LayerSpec& spec) {
  return std::visit([](const auto& layer) { return reads_of(layer); }, spec);
}

}  // namespace tutti
