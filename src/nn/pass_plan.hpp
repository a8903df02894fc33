#pragma once
// A network prepared for one batch size and mode: its layers, and where each activation and gradient lies in one
// arena. PartContext holds the arena and runs the passes.

#include "tutti/backend/layer.hpp"
#include "tutti/nn/part_context.hpp"

#include "memory_plan.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tutti {

// Numbers of memory blocks, for one layer.
struct LayerBlocks {
  std::size_t output = 0;
  // One for each layer that reads the output, in the order in which these write them.
  std::vector<std::size_t> output_gradients{};
  std::optional<std::size_t> input_gradient{};
  std::optional<std::size_t> residual_gradient{};
};

// Of one layer, as Layer says.
struct ActivationUse {
  std::size_t output_bytes = 0;
  bool reads_input = true;
  bool reads_output = true;
  bool residual_gradient_in_place = false;
};

// From how many bytes each layer's output takes and what its backward pass reads.
class ActivationPlan {
 public:
  // A use for every layer of the network.
  ActivationPlan(const Network& network, std::vector<ActivationUse> uses, LayerMode mode);

  const LayerBlocks& blocks(std::size_t layer) const { return layer_blocks_.at(layer); }
  const MemoryPlan& memory() const noexcept { return memory_; }

 private:
  void place_activations(const Network& network, bool trains);
  void place_gradients(const Network& network);
  std::size_t add_block(std::size_t layer, int begin);
  void keep(std::size_t block, int moment);
  // Moments: the layers forward, the loss, the layers backward.
  static int forward_time(std::size_t layer) { return static_cast<int>(layer); }
  int loss_time() const { return static_cast<int>(uses_.size()); }
  int backward_time(std::size_t layer) const { return 2 * loss_time() - static_cast<int>(layer); }

  std::vector<ActivationUse> uses_;
  std::vector<LayerBlocks> layer_blocks_;
  std::vector<BlockLifetime> lifetimes_;
  MemoryPlan memory_;
};

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
