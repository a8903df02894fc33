#pragma once
// Where each activation and gradient of a pass lies in one arena, from how many bytes each layer's output takes and
// what its backward pass reads.

#include "tutti/backend/layer.hpp"
#include "tutti/nn/network.hpp"

#include "memory_plan.hpp"

#include <cstddef>
#include <optional>
#include <span>
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
  bool leaves_residual_gradient = false;
};

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
  static int forward_moment(std::size_t layer) { return static_cast<int>(layer); }
  int loss_moment() const { return static_cast<int>(uses_.size()); }
  int backward_moment(std::size_t layer) const { return 2 * loss_moment() - static_cast<int>(layer); }

  std::vector<ActivationUse> uses_;
  std::vector<LayerBlocks> layer_blocks_;
  std::vector<MemoryBlock> lifetimes_;
  MemoryPlan memory_;
};

}  // namespace tutti
