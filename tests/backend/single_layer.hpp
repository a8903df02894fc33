#pragma once
// One layer of a backend with all of its memory, in layouts that the test chooses, poisoned between passes.

#include "backend/network.hpp"

namespace tutti::testing_support {

struct SingleLayerOptions {
  ActivationSpec input;
  ActivationSpec residual{};
  LayerMode mode = LayerMode::training;
  bool wants_input_gradient = true;
  BatchPosition place = kPlace;
  WholeBatchSum* whole_batch = nullptr;
};

struct SingleGradients {
  std::vector<float> input;
  std::vector<float> residual;
  std::vector<std::vector<float>> parameters;
};

class SingleLayer {
 public:
  SingleLayer(Device& device, const LayerSpec& spec, const SingleLayerOptions& options, const NetworkWeights& weights)
      : device_(device),
        options_(options),
        layer_(device.backend().make_layer(spec, {.input = options.input,
                                                  .residual = options.residual,
                                                  .weights = weights.prepared(0),
                                                  .mode = options.mode,
                                                  .wants_input_gradient = options.wants_input_gradient,
                                                  .random_purpose = kPurpose})),
        input_(guarded(options.input)),
        residual_(guarded(options.residual)),
        output_(guarded(layer_->output())),
        input_gradient_(guarded(options.input)),
        residual_gradient_(guarded(options.residual)),
        block_(device, weights.tensors(0)) {}

  const ActivationSpec& output() const { return layer_->output(); }
  const Buffer& output_memory() const { return output_; }
  const Buffer& input_gradient_memory() const { return input_gradient_; }

  std::vector<float> forward(const std::vector<float>& input, const std::vector<float>& residual) {
    device_.set_values(options_.input, input_, input);
    if (options_.residual.format) device_.set_values(options_.residual, residual_, residual);
    device_.poison(output_);
    layer_->set_batch_position(device_.stream(), options_.place);
    layer_->forward(device_.stream(), {.input = input_.data(),
                                       .residual = residual_.data(),
                                       .output = output_.data(),
                                       .whole_batch = options_.whole_batch});
    return device_.values_of(output(), output_);
  }

  // Passes null for tensors that the layer declares not to read.
  SingleGradients backward(const std::vector<std::vector<float>>& output_gradients, bool wants_input_gradient = true) {
    std::vector<Buffer> memory;
    std::vector<void*> addresses;
    for (const auto& values : output_gradients) {
      memory.push_back(guarded(output()));
      device_.set_values(output(), memory.back(), values);
      addresses.push_back(memory.back().data());
    }
    for (const Buffer* buffer : {&input_gradient_, &residual_gradient_, &block_.memory}) device_.poison(*buffer);
    void* const residual_gradient = layer_->residual_gradient_in_place() ? addresses[0] : residual_gradient_.data();
    const bool is_wanted = options_.wants_input_gradient && wants_input_gradient;
    layer_->backward(device_.stream(), {.input = layer_->reads_input() ? input_.data() : nullptr,
                                        .output = layer_->reads_output() ? output_.data() : nullptr,
                                        .output_gradients = addresses,
                                        .input_gradient = is_wanted ? input_gradient_.data() : nullptr,
                                        .residual_gradient = options_.residual.format ? residual_gradient : nullptr,
                                        .gradients = block_.gradients,
                                        .sample_fraction = kShare,
                                        .whole_batch = options_.whole_batch});
    SingleGradients result{device_.values_of(options_.input, input_gradient_), {}, {}};
    if (options_.residual.format) result.residual = device_.values_of(options_.residual, residual_gradient);
    for (const Tensor& gradient : block_.gradients) result.parameters.push_back(device_.download<float>(gradient));
    return result;
  }

  bool wrote_nothing_else() {
    const auto is_whole = [&](const Buffer& buffer, const ActivationSpec& activation) {
      if (!activation.format) return true;
      const auto guard = device_.download<std::uint8_t>(
          buffer.view({static_cast<std::int64_t>(kGuardBytes)}, ElementType::u8, activation.bytes));
      return std::ranges::all_of(guard, [](std::uint8_t byte) { return byte == 0xFF; });
    };
    return is_whole(output_, output()) && is_whole(input_gradient_, options_.input) &&
           is_whole(residual_gradient_, options_.residual) && block_.is_untouched_elsewhere(device_);
  }
  std::vector<float> input() { return device_.values_of(options_.input, input_); }

 private:
  static constexpr std::size_t kGuardBytes = 128;

  Buffer guarded(const ActivationSpec& activation) {
    Buffer buffer = device_.backend().allocate(activation.bytes + kGuardBytes);
    device_.poison(buffer);
    return buffer;
  }

  Device& device_;
  SingleLayerOptions options_;
  std::unique_ptr<Layer> layer_;
  Buffer input_;
  Buffer residual_;
  Buffer output_;
  Buffer input_gradient_;
  Buffer residual_gradient_;
  GradientBlock block_;
};

}  // namespace tutti::testing_support
