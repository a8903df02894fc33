#pragma once
// A network prepared for one batch size and mode: its layers, and where each activation and gradient lies in one
// arena. PartContext holds the arena and runs the passes.

#include "tutti/nn/part_context.hpp"

#include "activation_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

struct PassRequest {
  std::int64_t samples = 0;
  LayerMode mode = LayerMode::training;
  double label_smoothing = 0;
};

class PassPlan {
 public:
  PassPlan(const Network& network, const NetworkWeights& weights, Backend& backend, const PassRequest& request);

  LayerMode mode() const noexcept { return mode_; }
  Layer& layer(std::size_t number) const { return *layers_.at(number); }
  LossLayer& loss() const { return *loss_; }
  const LayerBlocks& blocks(std::size_t layer) const { return activations_->blocks(layer); }
  const MemoryPlan& memory() const noexcept { return activations_->memory(); }

 private:
  void prepare_layers(const NetworkWeights& weights, Backend& backend, const PassRequest& request);

  const Network& network_;
  LayerMode mode_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<LossLayer> loss_;
  std::optional<ActivationPlan> activations_;
};

}  // namespace tutti
