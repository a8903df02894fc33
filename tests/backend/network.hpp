#pragma once
// A chain of one backend's layers with all of its memory, which is run as a part and poisoned between passes.

#include "backend/network_weights.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace tutti::testing_support {

struct NetworkOptions {
  LayerMode mode = LayerMode::training;
  bool wants_input_gradient = true;
  bool frozen = false;
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
      : device_(device),
        wants_input_gradient_(options.wants_input_gradient),
        input_spec_(device.backend().plain_activation(network.sample.batch_of(network.batch))) {
    input_ = device.backend().allocate(input_spec_.bytes);
    add_gradient(0);
    for (std::size_t i = 0; i < network.layers.size(); ++i) {
      LayerRequest request{.input = activation(i),
                           .weights = weights.prepared(i),
                           .mode = options.mode,
                           .wants_input_gradient = i > 0 || wants_input_gradient_,
                           .frozen = options.frozen,
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
      steps_[i].layer->set_batch_position(device_.stream(), kPlace);
      steps_[i].layer->forward(device_.stream(), {.input = values(i).data(),
                                                  .residual = residual ? values(*residual).data() : nullptr,
                                                  .output = steps_[i].output.data()});
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

  // Passes null for tensors that the layer declares not to read.
  void backward_layer(std::size_t i, UnfinishedGradients* unfinished = nullptr) {
    Step& step = steps_.at(i);
    std::vector<void*> output_gradients;
    for (const Slot& slot : gradients_[i + 1]) output_gradients.push_back(slot.address);
    void* residual_gradient = nullptr;
    if (step.residual) {
      Slot& slot = residual_slot(i);
      if (step.layer->residual_gradient_in_place()) slot.address = output_gradients[0];
      residual_gradient = slot.address;
    }
    step.layer->backward(device_.stream(),
                         {.input = step.layer->reads_input() ? values(i).data() : nullptr,
                          .output = step.layer->reads_output() ? step.output.data() : nullptr,
                          .output_gradients = output_gradients,
                          .input_gradient = i > 0 || wants_input_gradient_ ? gradients_[i][0].address : nullptr,
                          .residual_gradient = residual_gradient,
                          .gradients = step.block.gradients,
                          .sample_fraction = kShare,
                          .unfinished = unfinished});
  }

  // All gradients in one list: of the input, then of the parameters, layer by layer.
  std::vector<std::vector<float>> backward(const std::vector<float>& output_gradient) {
    begin_backward(output_gradient);
    const auto unfinished = device_.backend().make_unfinished_gradients();
    for (std::size_t i = steps_.size(); i-- > 0;) backward_layer(i, unfinished.get());
    if (unfinished) unfinished->finish(device_.stream());
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

  // The gradients of each activation: by the layer after it (or from outside), then by those that add it.
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
  bool wants_input_gradient_;
  ActivationSpec input_spec_;
  Buffer input_;
  std::vector<Step> steps_;
  std::vector<std::vector<Slot>> gradients_;
};

}  // namespace tutti::testing_support
