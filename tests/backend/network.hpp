#pragma once
// A chain of one backend's layers with all of its memory, run as a part would run it, and poisoned between
// passes.

#include "backend/device_values.hpp"
#include "backend/layer_cases.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::testing_support {

// A variance is positive.
inline std::vector<float> parameter_values(const ParameterSpec& parameter, const std::string& name, double scale) {
  auto values = random_floats(parameter.shape.elements(), name, scale);
  if (parameter.kind != ParameterKind::variance) return values;
  for (float& value : values) value = 0.5f + std::abs(value);
  return values;
}

// Gradients of a layer's parameters in one block, apart from each other.
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

  // Whether all beside the gradients is still poison.
  bool is_untouched_beside(Device& device) const {
    auto bytes =
        device.download<std::uint8_t>(memory.view({static_cast<std::int64_t>(memory.bytes())}, ElementType::u8));
    for (const Tensor& gradient : gradients) {
      const auto offset = static_cast<std::byte*>(gradient.data) - static_cast<std::byte*>(memory.data());
      std::fill_n(bytes.begin() + offset, gradient.bytes(), std::uint8_t{0xFF});
    }
    return std::ranges::all_of(bytes, [](std::uint8_t byte) { return byte == 0xFF; });
  }
};

// Where the test batches stand in their runs.
inline constexpr SamplePlace kPlace{.seed = 11, .step = 3, .first_position = 5};
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

struct NetworkOptions {
  LayerMode mode = LayerMode::training;
  bool wants_input_gradient = true;
};

class NetworkPlan {
 public:
  struct Step {
    std::unique_ptr<Layer> layer;
    Buffer output;
    GradientBlock block;
    std::optional<std::size_t> residual;  // the activation
  };

  NetworkPlan(Device& device, const NetworkCase& network, const NetworkWeights& weights, NetworkOptions options = {})
      : device_(device), input_spec_(device.backend().plain_activation(network.sample.batch_of(network.batch))) {
    input_ = device.backend().allocate(input_spec_.bytes);
    add_gradient(0);
    for (std::size_t i = 0; i < network.layers.size(); ++i) {
      LayerRequest request{.input = activation(i),
                           .weights = weights.prepared(i),
                           .mode = options.mode,
                           .wants_input_gradient = i > 0 || options.wants_input_gradient,
                           .random_purpose = kPurpose};
      std::optional<std::size_t> residual;
      for (const ResidualCase& added : network.residuals) {
        if (added.layer != i) continue;
        residual = added.activation;
        request.residual = activation(added.activation);
        add_gradient(added.activation);
      }
      Step step{device.backend().make_layer(network.layers[i], request), {}, {device, weights.tensors(i)}, residual};
      step.output = device.backend().allocate(step.layer->output().bytes);
      steps_.push_back(std::move(step));
      add_gradient(i + 1);
    }
  }

  // Activation i is the input of layer i and the output of the layer before.
  const ActivationSpec& activation(std::size_t i) const {
    return i == 0 ? input_spec_ : steps_.at(i - 1).layer->output();
  }
  const Buffer& values(std::size_t i) const { return i == 0 ? input_ : steps_.at(i - 1).output; }
  std::size_t layers() const { return steps_.size(); }
  const Step& step(std::size_t layer) const { return steps_.at(layer); }

  // The gradient of activation i, in canonical order, by layer i alone; and by all that read the activation.
  std::vector<float> gradient(std::size_t i) { return device_.values_of(activation(i), gradients_[i][0].address); }
  std::vector<float> whole_gradient(std::size_t i) {
    std::vector<float> sum = gradient(i);
    for (std::size_t k = 1; k < gradients_[i].size(); ++k) {
      const auto more = device_.values_of(activation(i), gradients_[i][k].address);
      for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += more[e];
    }
    return sum;
  }
  // What layer i gave back for its residual.
  std::vector<float> residual_gradient(std::size_t i) {
    return device_.values_of(activation(*steps_[i].residual), residual_slot(i).address);
  }

  std::vector<float> forward(const std::vector<float>& input) {
    device_.set_values(input_spec_, input_, input);
    for (Step& step : steps_) device_.poison(step.output);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const auto& residual = steps_[i].residual;
      steps_[i].layer->forward(device_.stream(), {.input = values(i).data(),
                                                  .residual = residual ? values(*residual).data() : nullptr,
                                                  .output = steps_[i].output.data(),
                                                  .place = kPlace});
    }
    return device_.values_of(activation(steps_.size()), steps_.back().output.data());
  }

  void begin_backward(const std::vector<float>& output_gradient) {
    for (Step& step : steps_) device_.poison(step.block.memory);
    for (auto& slots : gradients_) {
      for (Slot& slot : slots) {
        device_.poison(slot.memory);
        slot.address = slot.memory.data();
      }
    }
    device_.set_values(activation(steps_.size()), gradients_.back()[0].memory, output_gradient);
  }

  // Withholds what the layer says that it does not read.
  void backward_layer(std::size_t i) {
    Step& step = steps_.at(i);
    std::vector<void*> output_gradients;
    for (const Slot& slot : gradients_[i + 1]) output_gradients.push_back(slot.address);
    void* residual_gradient = nullptr;
    if (step.residual) {
      Slot& slot = residual_slot(i);
      if (step.layer->leaves_residual_gradient()) slot.address = output_gradients[0];
      residual_gradient = slot.address;
    }
    step.layer->backward(device_.stream(), {.input = step.layer->reads_input() ? values(i).data() : nullptr,
                                            .output = step.layer->reads_output() ? step.output.data() : nullptr,
                                            .output_gradients = output_gradients,
                                            .input_gradient = gradients_[i][0].address,
                                            .residual_gradient = residual_gradient,
                                            .gradients = step.block.gradients,
                                            .sample_share = kShare});
  }

  // All gradients in one list: of the input, then of the parameters, layer by layer.
  std::vector<std::vector<float>> backward(const std::vector<float>& output_gradient) {
    begin_backward(output_gradient);
    for (std::size_t i = steps_.size(); i-- > 0;) backward_layer(i);
    std::vector<std::vector<float>> all{whole_gradient(0)};
    for (const Step& step : steps_) {
      for (const Tensor& gradient : step.block.gradients) all.push_back(device_.download<float>(gradient));
    }
    return all;
  }

 private:
  struct Slot {
    Buffer memory;
    void* address = nullptr;
    std::size_t from = 0;
  };

  // Of each activation: by the layer after it (or from outside), then by those that add it.
  void add_gradient(std::size_t activation_number) {
    if (gradients_.size() <= activation_number) gradients_.emplace_back();
    auto& slots = gradients_[activation_number];
    slots.push_back({device_.backend().allocate(activation(activation_number).bytes), nullptr, steps_.size()});
  }
  Slot& residual_slot(std::size_t layer) {
    auto& slots = gradients_[*steps_[layer].residual];
    return *std::find_if(slots.begin() + 1, slots.end(), [&](const Slot& slot) { return slot.from == layer; });
  }

  Device& device_;
  ActivationSpec input_spec_;
  Buffer input_;
  std::vector<Step> steps_;
  std::vector<std::vector<Slot>> gradients_;
};

}  // namespace tutti::testing_support
