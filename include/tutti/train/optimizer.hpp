#pragma once
// How weights follow from gradients. Optimizers mean what PyTorch's mean, work on the whole flat block, and keep
// their state in blocks of the same layout.

#include "tutti/backend/backend.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include <memory>
#include <string>
#include <vector>

namespace tutti {

struct OptimizerOptions {
  std::string kind = "sgd";
  double momentum = 0.9;
  double weight_decay = 0;
  bool nesterov = false;
};

// One block of optimizer state, named as in a checkpoint.
struct OptimizerSlot {
  std::string name;
  Tensor block;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Asynchronous.
  virtual void apply(Stream& stream, const ParameterArena& arena, double learning_rate) = 0;
  // Empty for an optimizer without state.
  virtual std::vector<OptimizerSlot> slots() const = 0;
};

// Throws a usage error for an unknown kind or values out of range.
void require_sensible(const OptimizerOptions& options);

// Throws as require_sensible does. `backend` is borrowed.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Backend& backend,
                                          const ParameterLayout& layout);

}  // namespace tutti
