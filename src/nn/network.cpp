#include "tutti/nn/network.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kGreatestSizeTried = 1024;
constexpr std::int64_t kDrawnAtOnce = 1 << 14;  // so that they stay in a core's cache

// Connects the layers: names become numbers. Throws an input error for names that are used twice or mean no earlier
// layer, and for outputs that nobody reads.
std::vector<NetworkLayer> connect(const NetworkSpec& spec) {
  const auto refuse = [&](const std::string& layer, const std::string& why) {
    throw Error(ErrorSource::input, fmt::format("layer {} of the network {}: {}", layer, spec.name, why));
  };
  if (spec.layers.empty()) throw Error(ErrorSource::input, fmt::format("the network {} has no layers", spec.name));
  std::vector<NetworkLayer> layers;
  std::set<int> read;
  const auto source = [&](const LayerNode& reader, const std::string& name) {
    if (name == kImageName) return kImage;
    const auto found = std::ranges::find(layers, name, &NetworkLayer::name);
    if (found == layers.end()) {
      refuse(reader.name, fmt::format("it reads '{}', but no layer before it has this name", name));
    }
    return static_cast<int>(found - layers.begin());
  };
  for (const LayerNode& node : spec.layers) {
    if (node.name == kImageName) refuse(node.name, "this is the name of the image itself");
    if (std::ranges::count(layers, node.name, &NetworkLayer::name) > 0) {
      refuse(node.name, "two layers have this name");
    }
    NetworkLayer layer{.name = node.name, .spec = node.spec, .input = {}, .output = {}};
    layer.from = node.input.empty() ? static_cast<int>(layers.size()) - 1 : source(node, node.input);
    if (takes_residual(node.spec) == node.residual.empty()) {
      refuse(node.name, node.residual.empty()
                            ? "it adds a residual, but none is named"
                            : fmt::format("it has a residual, but this {} adds none", type_name(node.spec)));
    }
    if (!node.residual.empty()) layer.residual_from = source(node, node.residual);
    read.insert({layer.from, layer.residual_from});
    layers.push_back(std::move(layer));
  }
  for (std::size_t i = 0; i + 1 < layers.size(); ++i) {
    if (read.contains(static_cast<int>(i))) continue;
    refuse(layers[i].name, "nothing reads its output; let a later layer take it as input or residual");
  }
  return layers;
}

struct ShapeError {
  std::string layer;
  std::string why;
};

// Fills in the shapes, up to the first layer that does not fit.
std::optional<ShapeError> find_shapes(std::vector<NetworkLayer>& layers, const Shape& sample) {
  const auto output_of = [&](int layer) {
    return layer == kImage ? sample : layers[static_cast<std::size_t>(layer)].output;
  };
  for (NetworkLayer& layer : layers) {
    layer.input = output_of(layer.from);
    try {
      layer.output = output_shape(layer.spec, layer.input);
    } catch (const Error& error) {
      if (error.source() != ErrorSource::input) throw;
      return ShapeError{layer.name, error.what()};
    }
    if (takes_residual(layer.spec) && output_of(layer.residual_from) != layer.output) {
      return ShapeError{layer.name, fmt::format("its residual is {}, but what this is added to is {}",
                                                output_of(layer.residual_from).text(), layer.output.text())};
    }
  }
  return std::nullopt;
}

// "; the least size is 32x32" where square images of some size fit, else nothing.
std::string least_size_text(std::vector<NetworkLayer> layers, const Shape& sample) {
  if (sample.ndim() != 3) return "";
  for (std::int64_t size = 1; size <= kGreatestSizeTried; ++size) {
    if (!find_shapes(layers, {sample[0], size, size})) return fmt::format("; the least size is {}x{}", size, size);
  }
  return "";
}

// Throws an input error unless the layer has what its keys `frozen` and `init` name.
void require_parameters(const LayerNode& node, const NetworkLayer& layer, const Shape& image) {
  const auto list = parameters(layer.spec, layer.input);
  const auto has = [&](ParameterKind kind) { return std::ranges::count(list, kind, &ParameterSpec::kind) > 0; };
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorSource::input, fmt::format("layer {}: {}", node.name, why));
  };
  for (const ParameterKind kind : node.frozen) {
    if (is_statistic(kind) || !has(kind)) refuse(fmt::format("it has no {} that could be frozen", name_of(kind)));
  }
  if (node.initializer && !has(ParameterKind::weight)) refuse("it has no weight that 'init' could set");
  if (node.initializer != LayerInitializer::whitening) return;
  const auto* const convolution = std::get_if<Conv2dSpec>(&layer.spec);
  const std::int64_t values = list[0].shape.elements() / list[0].shape[0];
  if (convolution != nullptr && layer.from == kImage && convolution->dilation == 1 &&
      convolution->kernel <= std::min(image[1], image[2]) && convolution->channels % 2 == 0 &&
      convolution->channels <= 2 * values && list[0].shape[1] == image[0]) {
    return;
  }
  refuse(
      fmt::format("init = \"whitening\" is for convolutions of the image with an even number of channels, here at "
                  "most {}, without dilation, and with a kernel that fits into the image",
                  2 * values));
}

struct Initial {
  Initializer initializer;
  std::uint64_t seed;
};
struct LayerInitial {
  const NetworkLayer& layer;
  std::optional<LayerInitializer> own;
  Initial usual;  // the network's
};

// The values from `first` on, of a slice that is a weight.
void fill_weight(std::span<float> values, const ParameterSlice& slice, std::int64_t first, const Initial& initial) {
  if (slice.shape.elements() > std::int64_t{1} << 32) {  // the random number of an element is keyed by 32 bits
    throw Error(ErrorSource::input,
                fmt::format("{} has {} elements, the limit is 2^32", slice.name, slice.shape.elements()));
  }
  // The first extent counts outputs and the second inputs; the others are a window.
  const double outputs = static_cast<double>(slice.shape[0]);
  const double fan_in = static_cast<double>(slice.shape.elements()) / outputs;
  const double fan_out = outputs * (fan_in / static_cast<double>(slice.shape[1]));
  const RandomCounter start{.item = static_cast<std::uint32_t>(first), .purpose = random_purpose(slice.name)};
  std::vector<double> drawn(values.size());
  if (initial.initializer == Initializer::xavier || initial.initializer == Initializer::uniform) {
    const bool averages = initial.initializer == Initializer::xavier;
    const double limit = averages ? std::sqrt(6.0 / (fan_in + fan_out)) : 1 / std::sqrt(fan_in);
    first_uniforms(initial.seed, start, drawn);
    std::ranges::transform(drawn, values.begin(), [=](double x) { return static_cast<float>(limit * (2 * x - 1)); });
  } else {
    const double sigma = initial.initializer == Initializer::normal ? 0.01 : std::sqrt(2.0 / fan_in);
    first_normals(initial.seed, start, drawn);
    std::ranges::transform(drawn, values.begin(), [=](double x) { return static_cast<float>(sigma * x); });
  }
}

// Makes the first outputs of each group copies of its inputs. `values` are elements `first` and following.
void copy_inputs(std::span<float> values, const ParameterSlice& slice, std::int64_t first, const LayerSpec& spec) {
  const auto* const convolution = std::get_if<Conv2dSpec>(&spec);
  const std::int64_t kernel = convolution != nullptr ? convolution->kernel : 1;
  const std::int64_t outputs = slice.shape[0] / (convolution != nullptr ? convolution->groups : 1);
  const std::int64_t inputs = slice.shape[1];
  const std::int64_t center = kernel / 2 * kernel + kernel / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::int64_t filter = (first + static_cast<std::int64_t>(i)) / (kernel * kernel);
    const std::int64_t position = (first + static_cast<std::int64_t>(i)) % (kernel * kernel);
    const std::int64_t output = filter / inputs % outputs;
    if (output < inputs) values[i] = filter % inputs == output && position == center ? 1.0f : 0.0f;
  }
}

// Elements `first` and following of a slice of this layer.
void fill(std::span<float> values, const ParameterSlice& slice, std::int64_t first, const LayerInitial& initial) {
  const auto& [layer, own, usual] = initial;
  const bool is_one = slice.kind == ParameterKind::scale || slice.kind == ParameterKind::variance;
  std::ranges::fill(values, is_one ? 1.0f : 0.0f);
  if (slice.kind != ParameterKind::weight || own == LayerInitializer::zero) return;
  if (own == LayerInitializer::whitening) {
    if (layer.whitening.empty()) return;
    std::ranges::copy_n(layer.whitening.begin() + first, std::ssize(values), values.begin());
    return;
  }
  const auto named = own ? value_named<Initializer>(name_of(*own)) : std::nullopt;
  fill_weight(values, slice, first, {named.value_or(usual.initializer), usual.seed});
  if (own == LayerInitializer::dirac) copy_inputs(values, slice, first, layer.spec);
}

}  // namespace

Network::Network(const NetworkSpec& spec, const Shape& sample, int classes, const std::vector<std::string>& frozen)
    : spec_(spec), sample_(sample), classes_(classes), layers_(connect(spec)) {
  for (NetworkLayer& layer : layers_) {
    auto* const linear = std::get_if<LinearSpec>(&layer.spec);
    if (linear != nullptr && linear->units == kUnitsFromClasses) linear->units = classes;
  }
  if (const auto misfit = find_shapes(layers_, sample)) {
    throw Error(ErrorSource::input,
                fmt::format("layer {} of the network {} does not fit images of {}: {}{}", misfit->layer, spec.name,
                            sample.text(), misfit->why, least_size_text(layers_, sample)));
  }
  if (layers_.back().output != Shape{classes}) {
    throw Error(ErrorSource::input,
                fmt::format("the network {} ends with {} values per image, but the data have {} classes: let its last "
                            "layer be linear with units = \"classes\"",
                            spec.name, layers_.back().output.text(), classes));
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) require_parameters(spec_.layers[i], layers_[i], sample_);
  freeze(frozen);
  add_slices(false);
  add_slices(true);
  find_backward();
}

void Network::freeze(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool is_found = false;
    for (NetworkLayer& layer : layers_) {
      if (::fnmatch(pattern.c_str(), layer.name.c_str(), 0) != 0) continue;
      is_found = layer.frozen = true;
    }
    if (is_found) continue;
    throw Error(ErrorSource::usage, fmt::format("--freeze {}: the network {} has no such layer; it has {}, for example",
                                                pattern, spec_.name, layers_.front().name));
  }
}

void Network::find_backward() {
  for (NetworkLayer& layer : layers_) {
    const auto changes = [this](int slice) { return !layout_.slice(slice).frozen; };
    layer.has_backward =
        std::ranges::any_of(layer.parameters, changes) || has_gradient(layer.from) || has_gradient(layer.residual_from);
    if (layer.has_backward) continue;
    for (const int slice : layer.parameters) layout_.remove_gradient(slice);
  }
  if (layers_.back().has_backward) return;
  throw Error(ErrorSource::usage, fmt::format("all layers of {} are frozen: leave one to train", spec_.name));
}

// Adds the slices in the order in which backward finishes the layers.
void Network::add_slices(bool statistics) {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    NetworkLayer& layer = layers_[i];
    const auto* const norm = std::get_if<BatchNormSpec>(&layer.spec);
    for (const ParameterSpec& parameter : parameters(layer.spec, layer.input)) {
      if (is_statistic(parameter.kind) != statistics) continue;
      const bool is_named = std::ranges::count(spec_.layers[i].frozen, parameter.kind) > 0;
      layer.parameters.push_back(
          layout_.add({.name = fmt::format("{}/{}", layer.name, name_of(parameter.kind)),
                       .kind = parameter.kind,
                       .shape = parameter.shape,
                       .frozen = layer.frozen || is_named,
                       .momentum = statistics && norm != nullptr && !layer.frozen ? norm->momentum : 0}));
    }
  }
}

std::int64_t Network::multiply_adds() const {
  std::int64_t sum = 0;
  for (const NetworkLayer& layer : layers_) {
    if (__builtin_add_overflow(sum, tutti::multiply_adds(layer.spec, layer.input), &sum)) {
      throw Error(ErrorSource::input,
                  fmt::format("the network {} needs more multiplications up to layer {} than can be "
                              "counted: use smaller layers",
                              spec_.name, layer.name));
    }
  }
  return sum;
}

void initialize(const Network& network, Initializer initializer, std::uint64_t seed, Backend& backend,
                const Tensor& block) {
  const auto stream = backend.make_stream();
  std::vector<float> values;
  for (std::size_t i = 0; i < network.layers().size(); ++i) {
    const NetworkLayer& layer = network.layers()[i];
    for (const int number : layer.parameters) {
      const ParameterSlice& slice = network.layout().slice(number);
      const Tensor all = slice_of(block, slice);
      for (std::int64_t first = 0; first < slice.elements(); first += kDrawnAtOnce) {
        const Shape some{std::min(kDrawnAtOnce, slice.elements() - first)};
        values.resize(static_cast<std::size_t>(some[0]));
        fill(values, slice, first, {layer, network.spec().layers[i].initializer, {initializer, seed}});
        backend.copy(*stream, {static_cast<float*>(all.data) + first, some, all.type, all.space},
                     {values.data(), some, ElementType::f32, MemorySpace::host});
        stream->synchronize();
      }
    }
  }
}

}  // namespace tutti
