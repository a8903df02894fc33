#pragma once
// A chain of one backend's layers with all of its memory, run as a part would run it, and poisoned between
// passes.

#include "backend/device_values.hpp"
#include "backend/layer_cases.hpp"

#include <memory>
#include <vector>

namespace tutti::testing_support {

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
        layer.values.push_back(random_floats(parameter.shape.elements(), name, 2 * scale));
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
        layer.values[i] = random_floats(layer.tensors[i].elements(), name + std::to_string(i));
        device_.upload(layer.tensors[i], layer.values[i]);
      }
    }
  }

  LayerWeights* prepared(std::size_t layer) const { return layers_.at(layer).prepared.get(); }
  const std::vector<Tensor>& tensors(std::size_t layer) const { return layers_.at(layer).tensors; }
  const std::vector<std::vector<float>>& values(std::size_t layer) const { return layers_.at(layer).values; }

 private:
  struct LayerValues {
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
  // Between two gradients, and after the last: memory that no layer may touch.
  static constexpr std::size_t kGuardBytes = 64;

  struct Step {
    std::unique_ptr<Layer> layer;
    Buffer output;
    Buffer output_gradient;
    Buffer gradient_block;
    std::vector<Tensor> gradients;
  };

  NetworkPlan(Device& device, const NetworkCase& network, const NetworkWeights& weights, NetworkOptions options = {})
      : device_(device), input_spec_(device.backend().plain_activation(network.sample.batch_of(network.batch))) {
    input_ = device.backend().allocate(input_spec_.bytes);
    input_gradient_ = device.backend().allocate(input_spec_.bytes);
    for (std::size_t i = 0; i < network.layers.size(); ++i) {
      const bool wants = i > 0 || options.wants_input_gradient;
      const LayerRequest request{activation(i), weights.prepared(i), options.mode, wants};
      Step step{device.backend().make_layer(network.layers[i], request), {}, {}, {}, {}};
      step.output = device.backend().allocate(step.layer->output().bytes);
      step.output_gradient = device.backend().allocate(step.layer->output().bytes);
      lay_out_gradients(step, weights.tensors(i));
      steps_.push_back(std::move(step));
    }
  }

  // Activation i is the input of layer i and the output of the layer before.
  const ActivationSpec& activation(std::size_t i) const {
    return i == 0 ? input_spec_ : steps_.at(i - 1).layer->output();
  }
  const Buffer& values(std::size_t i) const { return i == 0 ? input_ : steps_.at(i - 1).output; }
  const Buffer& gradient(std::size_t i) const { return i == 0 ? input_gradient_ : steps_.at(i - 1).output_gradient; }
  std::size_t layers() const { return steps_.size(); }
  const Step& step(std::size_t layer) const { return steps_.at(layer); }

  std::vector<float> forward(const std::vector<float>& input) {
    device_.set_values(input_spec_, input_, input);
    for (Step& step : steps_) device_.poison(step.output);
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      steps_[i].layer->forward(device_.stream(), {values(i).data(), steps_[i].output.data()});
    }
    return device_.values_of(activation(steps_.size()), steps_.back().output);
  }

  void begin_backward(const std::vector<float>& output_gradient) {
    for (Step& step : steps_) {
      device_.poison(step.output_gradient);
      device_.poison(step.gradient_block);
    }
    device_.poison(input_gradient_);
    device_.set_values(activation(steps_.size()), steps_.back().output_gradient, output_gradient);
  }

  void backward_layer(std::size_t i) {
    Step& step = steps_.at(i);
    step.layer->backward(device_.stream(), {values(i).data(), step.output.data(), step.output_gradient.data(),
                                            gradient(i).data(), step.gradients});
  }

  // All gradients in one list: of the input, then of the parameters, layer by layer.
  std::vector<std::vector<float>> backward(const std::vector<float>& output_gradient) {
    begin_backward(output_gradient);
    for (std::size_t i = steps_.size(); i-- > 0;) backward_layer(i);
    std::vector<std::vector<float>> all{device_.values_of(input_spec_, input_gradient_)};
    for (const Step& step : steps_) {
      for (const Tensor& gradient : step.gradients) all.push_back(device_.download<float>(gradient));
    }
    return all;
  }

 private:
  void lay_out_gradients(Step& step, const std::vector<Tensor>& parameters) {
    std::vector<std::size_t> offsets;
    std::size_t bytes = kGuardBytes;
    for (const Tensor& parameter : parameters) {
      offsets.push_back(bytes);
      bytes += (parameter.bytes() + kGuardBytes - 1) / kGuardBytes * kGuardBytes + kGuardBytes;
    }
    step.gradient_block = device_.backend().allocate(bytes);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      step.gradients.push_back(step.gradient_block.view(parameters[i].shape, ElementType::f32, offsets[i]));
    }
  }

  Device& device_;
  ActivationSpec input_spec_;
  Buffer input_;
  Buffer input_gradient_;
  std::vector<Step> steps_;
};

}  // namespace tutti::testing_support
