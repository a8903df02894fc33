#pragma once
// The parameters of a chain of layers and memory for their gradients, on any backend.

#include "backend/device_values.hpp"
#include "backend/layer_cases.hpp"

#include <algorithm>
#include <memory>
#include <vector>

namespace tutti::testing_support {

// A variance is positive.
inline std::vector<float> parameter_values(const ParameterSpec& parameter, const std::string& name, double scale) {
  auto values = random_floats(parameter.shape.elements(), name, scale);
  if (parameter.kind != ParameterKind::variance) return values;
  for (float& value : values) value = 0.5f + std::abs(value);
  return values;
}

// Channels are alternately far above and far below 0, with a small scale.
inline void clear_kinks(ParameterKind kind, std::vector<float>& values) {
  const bool offsets = kind == ParameterKind::bias || kind == ParameterKind::shift;
  if (!offsets && kind != ParameterKind::scale) return;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = offsets ? values[i] / 4 + (i % 2 == 0 ? 2.5f : -2.5f) : 0.5f + values[i] / 4;
  }
}

// Gradients of a layer's parameters in one block, with gaps between them.
struct GradientBlock {
  // Between two gradients, and after the last: memory that no layer may touch.
  static constexpr std::size_t kGuardBytes = 64;

  Buffer memory;
  std::vector<Tensor> gradients;

  GradientBlock(Device& device, const std::vector<Tensor>& parameters) {
    std::vector<std::size_t> offsets;
    std::size_t bytes = kGuardBytes;
    for (const Tensor& parameter : parameters) {
      offsets.push_back(bytes);
      bytes += (parameter.bytes() + kGuardBytes - 1) / kGuardBytes * kGuardBytes + kGuardBytes;
    }
    memory = device.backend().allocate(bytes);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      gradients.push_back(memory.view(parameters[i].shape, ElementType::f32, offsets[i]));
    }
  }

  // Whether all memory except the gradients is still poisoned.
  bool is_untouched_elsewhere(Device& device) const {
    auto bytes =
        device.download<std::uint8_t>(memory.view({static_cast<std::int64_t>(memory.bytes())}, ElementType::u8));
    for (const Tensor& gradient : gradients) {
      const auto offset = static_cast<std::byte*>(gradient.data) - static_cast<std::byte*>(memory.data());
      std::fill_n(bytes.begin() + offset, gradient.bytes(), std::uint8_t{0xFF});
    }
    return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0xFF; });
  }
};

// The positions of the test batches in their runs.
inline constexpr BatchPosition kPlace{.seed = 11, .step = 3, .first_position = 5};
inline constexpr std::uint32_t kPurpose = random_purpose("a layer");
inline constexpr float kShare = 0.25f;

// The weights of a chain, shared by its plans of all batch sizes.
class NetworkWeights {
 public:
  NetworkWeights(Device& device, const NetworkCase& network) : device_(device) {
    Shape sample = network.sample;
    for (const LayerSpec& spec : network.layers) {
      LayerValues layer;
      const double scale = 1 / std::sqrt(static_cast<double>(multiply_adds(spec, sample)) /
                                             static_cast<double>(output_shape(spec, sample).elements()) +
                                         1);
      for (const ParameterSpec& parameter : parameters(spec, sample)) {
        const auto name = network.name + std::to_string(layers_.size()) + std::string(name_of(parameter.kind));
        layer.values.push_back(parameter_values(parameter, name, 2 * scale));
        if (network.clear_of_kinks) clear_kinks(parameter.kind, layer.values.back());
        layer.parameters.push_back(parameter);
        layer.memory.push_back(device.buffer_of(layer.values.back()));
        layer.tensors.push_back(layer.memory.back().view(parameter.shape, ElementType::f32));
      }
      if (!layer.tensors.empty()) layer.prepared = device.backend().make_weights(spec, layer.tensors);
      layers_.push_back(std::move(layer));
      sample = output_shape(spec, sample);
    }
    refresh();
  }

  void refresh() {
    for (LayerValues& layer : layers_) {
      if (layer.prepared) layer.prepared->refresh(device_.stream());
    }
    device_.stream().synchronize();
  }

  // Other canonical values everywhere; the prepared copies are left as they were.
  void change(const std::string& name) {
    for (LayerValues& layer : layers_) {
      for (std::size_t i = 0; i < layer.values.size(); ++i) {
        layer.values[i] = parameter_values(layer.parameters[i], name + std::to_string(i), 1);
        device_.upload(layer.tensors[i], layer.values[i]);
      }
    }
  }

  LayerWeights* prepared(std::size_t layer) const { return layers_.at(layer).prepared.get(); }
  const std::vector<Tensor>& tensors(std::size_t layer) const { return layers_.at(layer).tensors; }
  const std::vector<std::vector<float>>& values(std::size_t layer) const { return layers_.at(layer).values; }

 private:
  struct LayerValues {
    std::vector<ParameterSpec> parameters;
    std::vector<std::vector<float>> values;
    std::vector<Buffer> memory;
    std::vector<Tensor> tensors;
    std::unique_ptr<LayerWeights> prepared;
  };
  Device& device_;
  std::vector<LayerValues> layers_;
};

}  // namespace tutti::testing_support
