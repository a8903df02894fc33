#pragma once
// A network prepared for one batch size and mode: its layers, and where each activation and gradient lies in one
// block of memory. NetworkInstance holds this memory and runs the passes.

#include "tutti/backend/layer.hpp"
#include "tutti/nn/network_instance.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace tutti {

struct BlockLifetime {
  std::size_t bytes = 0;
  // The first and the last moment at which the block must keep its contents.
  int begin = 0;
  int end = 0;
};

// Where pieces with known lifetimes lie in one block of memory, so that those that never live at once share it.
class MemoryPlan {
 public:
  static constexpr std::size_t kAlignment = 64;

  MemoryPlan() = default;
  explicit MemoryPlan(std::span<const BlockLifetime> blocks);

  std::size_t bytes() const noexcept { return bytes_; }
  // A multiple of kAlignment.
  std::size_t offset(std::size_t block) const { return offsets_.at(block); }

 private:
  void place(std::span<const BlockLifetime> blocks, std::span<const std::size_t> order);

  std::vector<std::size_t> offsets_;
  std::size_t bytes_ = 0;
};

// Numbers of memory blocks, for one layer.
struct LayerBlocks {
  std::size_t output = 0;
  // One for each layer that reads the output, in the order in which these write them.
  std::vector<std::size_t> output_gradients{};
  std::optional<std::size_t> input_gradient{};
  std::optional<std::size_t> residual_gradient{};
};

// What the activations of one layer need, as its Layer reports it.
struct ActivationUse {
  std::size_t output_bytes = 0;
  bool reads_input = true;
  bool reads_output = true;
  bool residual_gradient_in_place = false;
};

// Places the activations and gradients, given the bytes of each layer's output and what its backward pass reads.
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
  LossOptions loss{};  // of training
};

struct PassPlan {
  PassPlan(const Network& network, const NetworkWeights& weights, Backend& backend, const PassRequest& request);

  LayerMode mode;
  std::vector<std::unique_ptr<Layer>> layers;
  std::unique_ptr<LossLayer> loss;
  std::optional<ActivationPlan> activations;
};

}  // namespace tutti
