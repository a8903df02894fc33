#include "tutti/nn/network.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include "layer_graph.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace tutti {
namespace {

LayerSpec with_classes(LayerSpec spec, int classes) {
  if (auto* linear = std::get_if<LinearSpec>(&spec); linear != nullptr && linear->units == kUnitsAsClasses) {
    linear->units = classes;
  }
  return spec;
}

struct Fans {
  double in = 1;
  double out = 1;
};

// Of a weight whose first extent counts outputs and whose second counts inputs, the others being a window.
Fans fans_of(const Shape& weight) {
  const double outputs = static_cast<double>(weight[0]);
  const double in = static_cast<double>(weight.elements()) / outputs;
  const double window = in / static_cast<double>(weight[1]);
  return {in, outputs * window};
}

void fill_weight(std::vector<float>& values, const ParameterSlice& slice, Initializer initializer, std::uint64_t seed) {
  const Fans fans = fans_of(slice.shape);
  const double xavier_limit = std::sqrt(6.0 / (fans.in + fans.out));
  const double kaiming_sigma = std::sqrt(2.0 / fans.in);
  const std::uint32_t purpose = random_purpose(slice.name);
  for (std::size_t i = 0; i < values.size(); ++i) {
    RandomSequence random(seed, {.item = static_cast<std::uint32_t>(i), .purpose = purpose});
    switch (initializer) {
      case Initializer::normal:
        values[i] = static_cast<float>(0.01 * random.normal());
        break;
      case Initializer::xavier:
        values[i] = static_cast<float>(xavier_limit * (2 * random.uniform() - 1));
        break;
      case Initializer::kaiming:
        values[i] = static_cast<float>(kaiming_sigma * random.normal());
        break;
    }
  }
}

float constant_start(ParameterKind kind) {
  return kind == ParameterKind::scale || kind == ParameterKind::variance ? 1.0f : 0.0f;
}

}  // namespace

Network::Network(const NetworkSpec& spec, const Shape& sample, int classes)
    : spec_(spec), sample_(sample), classes_(classes), layers_(connect_layers(spec)) {
  for (NetworkLayer& layer : layers_) layer.spec = with_classes(layer.spec, classes);
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
  add_slices(false);
  add_slices(true);
}

// In the order in which backward finishes the layers.
void Network::add_slices(bool statistics) {
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    for (const ParameterSpec& parameter : parameters(layer->spec, layer->input)) {
      if (is_statistic(parameter.kind) != statistics) continue;
      const std::string name = fmt::format("{}/{}", layer->name, name_of(parameter.kind));
      layer->parameters.push_back(layout_.add(name, parameter.kind, parameter.shape));
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
  for (const ParameterSlice& slice : network.layout().slices()) {
    std::vector<float> values(static_cast<std::size_t>(slice.elements()), constant_start(slice.kind));
    if (slice.kind == ParameterKind::weight) fill_weight(values, slice, initializer, seed);
    backend.copy(*stream, slice_of(block, slice), {values.data(), slice.shape, ElementType::f32, MemorySpace::host});
    stream->synchronize();
  }
}

}  // namespace tutti
