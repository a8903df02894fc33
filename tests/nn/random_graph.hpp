#pragma once
// Random networks of fake layers, and the expected results of a pass, computed without reuse of memory.

#include "tutti/nn/network.hpp"

#include "nn/fake_math.hpp"

#include <random>
#include <string>

namespace tutti::testing_support {

// Every output has a reader: the head adds up all that have no other.
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed), spec_{"graph", Initializer::normal, {}} {
    const std::size_t layers = 1 + below(10);
    for (std::size_t i = 0; i < layers; ++i) add(some_spec(), some_source(), some_source());
    while (unread_.size() > 1) add(AddSpec{.relu = below(2) == 0}, unread_[0], unread_[1]);
    add(LinearSpec{.units = kUnitsFromClasses}, unread_.front(), "");
  }

  const NetworkSpec& spec() const { return spec_; }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }

  LayerSpec some_spec() {
    switch (below(4)) {
      case 0:
        return AddSpec{.relu = below(2) == 0};
      case 1:
        return DropoutSpec{};
      default:
        return BatchNormSpec{.add = below(2) == 0, .relu = below(2) == 0};
    }
  }

  std::string some_source() {
    if (!unread_.empty() && below(2) == 0) return unread_[below(unread_.size())];
    const std::size_t layer = below(spec_.layers.size() + 1);
    return layer == spec_.layers.size() ? std::string(kImageName) : spec_.layers[layer].name;
  }

  void add(const LayerSpec& spec, std::string input, std::string residual) {
    if (!takes_residual(spec)) residual.clear();
    std::erase_if(unread_, [&](const std::string& name) { return name == input || name == residual; });
    if (!spec_.layers.empty() && input == spec_.layers.back().name && below(2) == 0) input.clear();
    spec_.layers.push_back({"layer" + std::to_string(spec_.layers.size()), spec, input, residual});
    unread_.push_back(spec_.layers.back().name);
  }

  std::mt19937 random_;
  NetworkSpec spec_;
  std::vector<std::string> unread_;
};

struct GraphBatch {
  Values images;
  std::vector<std::int32_t> labels;
  float gradient_scale = 1;
  float sample_fraction = 1;
};

struct GraphResult {
  Values logits;
  std::vector<Values> slices;  // gradients and statistics, by slice number
};

inline GraphResult run_graph(const Network& network, const std::vector<Values>& parameters, const GraphBatch& batch) {
  const auto& layers = network.layers();
  std::vector<Values> outputs;
  const auto values_of = [&](int layer) {
    return layer == kImage ? batch.images : outputs.at(static_cast<std::size_t>(layer));
  };
  const auto pass_of = [&](const NetworkLayer& layer) {
    FakePass pass{.spec = layer.spec,
                  .channels = static_cast<std::size_t>(layer.input[0]),
                  .parameters = {},
                  .input = values_of(layer.from)};
    if (takes_residual(layer.spec)) pass.residual = values_of(layer.residual_from);
    for (const int slice : layer.parameters) pass.parameters.push_back(parameters.at(static_cast<std::size_t>(slice)));
    return pass;
  };
  for (const NetworkLayer& layer : layers) outputs.push_back(fake_forward(pass_of(layer)));

  std::vector<Values> gradients;
  for (const Values& output : outputs) gradients.emplace_back(output.size());
  const auto classes = static_cast<std::size_t>(network.classes());
  for (std::size_t i = 0; i < gradients.back().size(); ++i) {
    gradients.back()[i] = fake_loss_gradient(outputs.back()[i], batch.labels[i / classes], batch.gradient_scale);
  }
  const auto add_to = [&](int layer, const Values& gradient) {
    if (layer == kImage) return;
    Values& sum = gradients.at(static_cast<std::size_t>(layer));
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
  };
  GraphResult result{outputs.back(), std::vector<Values>(network.layout().slices().size())};
  for (std::size_t i = layers.size(); i-- > 0;) {
    const FakeGradients back = fake_backward(pass_of(layers[i]), outputs[i], gradients[i], batch.sample_fraction);
    add_to(layers[i].from, back.input);
    if (takes_residual(layers[i].spec)) add_to(layers[i].residual_from, back.residual);
    for (std::size_t p = 0; p < back.parameters.size(); ++p) {
      result.slices.at(static_cast<std::size_t>(layers[i].parameters[p])) = back.parameters[p];
    }
  }
  return result;
}

}  // namespace tutti::testing_support
