#include "layer_graph.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti {
namespace {

constexpr std::int64_t kGreatestSizeTried = 1024;

class Connections {
 public:
  explicit Connections(const NetworkSpec& spec) : spec_(spec) {
    if (spec.layers.empty()) throw Error(ErrorSource::input, fmt::format("the network {} has no layers", spec.name));
    for (const LayerNode& node : spec.layers) add(node);
    for (std::size_t i = 0; i + 1 < layers_.size(); ++i) {
      if (!read_.contains(static_cast<int>(i))) {
        refuse(layers_[i].name, "nothing reads its output; let a later layer take it as input or residual");
      }
    }
  }

  std::vector<NetworkLayer> take() && { return std::move(layers_); }

 private:
  void add(const LayerNode& node) {
    const auto same_name = [&](const NetworkLayer& layer) { return layer.name == node.name; };
    if (node.name == kImageName || std::ranges::any_of(layers_, same_name)) {
      refuse(node.name, node.name == kImageName ? "this is the name of the image itself" : "two layers have this name");
    }
    NetworkLayer layer{.name = node.name, .spec = node.spec, .input = {}, .output = {}};
    layer.from = node.input.empty() ? static_cast<int>(layers_.size()) - 1 : source(node.name, node.input);
    if (takes_residual(node.spec) == node.residual.empty()) {
      refuse(node.name, node.residual.empty()
                            ? "it adds a residual, but none is named"
                            : fmt::format("it has a residual, but this {} adds none", type_name(node.spec)));
    }
    if (!node.residual.empty()) layer.residual_from = source(node.name, node.residual);
    read_.insert({layer.from, layer.residual_from});
    layers_.push_back(std::move(layer));
  }

  int source(const std::string& reader, const std::string& name) const {
    if (name == kImageName) return kImage;
    const auto found = std::ranges::find(layers_, name, &NetworkLayer::name);
    if (found == layers_.end())
      refuse(reader, fmt::format("it reads '{}', but no layer before it has this name", name));
    return static_cast<int>(found - layers_.begin());
  }

  [[noreturn]] void refuse(const std::string& layer, const std::string& why) const {
    throw Error(ErrorSource::input, fmt::format("layer {} of the network {}: {}", layer, spec_.name, why));
  }

  const NetworkSpec& spec_;
  std::vector<NetworkLayer> layers_;
  std::set<int> read_;
};

}  // namespace

std::vector<NetworkLayer> connect_layers(const NetworkSpec& spec) { return Connections(spec).take(); }

std::optional<Misfit> find_shapes(std::vector<NetworkLayer>& layers, const Shape& sample) {
  const auto output_of = [&](int layer) {
    return layer == kImage ? sample : layers[static_cast<std::size_t>(layer)].output;
  };
  for (NetworkLayer& layer : layers) {
    layer.input = output_of(layer.from);
    try {
      layer.output = output_shape(layer.spec, layer.input);
    } catch (const Error& error) {
      if (error.source() != ErrorSource::input) throw;
      return Misfit{layer.name, error.what()};
    }
    if (takes_residual(layer.spec) && output_of(layer.residual_from) != layer.output) {
      return Misfit{layer.name, fmt::format("its residual is {}, but what this is added to is {}",
                                            output_of(layer.residual_from).text(), layer.output.text())};
    }
  }
  return std::nullopt;
}

std::string least_size_text(std::vector<NetworkLayer> layers, const Shape& sample) {
  if (sample.rank() != 3) return "";
  for (std::int64_t size = 1; size <= kGreatestSizeTried; ++size) {
    if (!find_shapes(layers, {sample[0], size, size})) return fmt::format("; the least size is {}x{}", size, size);
  }
  return "";
}

}  // namespace tutti
