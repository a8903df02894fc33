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
  std::string kind = "sgd";  // sgd, adamw or lars
  double momentum = 0.9;     // of sgd and lars
  double weight_decay = 0;
  bool nesterov = false;
  bool spares_norms_and_biases = false;  // from the decay: only slices of kind weight decay
  double clip_norm = 0;                  // above 0: the greatest norm of all gradients together
};

// One block of optimizer state, named as in a checkpoint: of the trained elements that this rank owns, one owned range
// behind the other.
struct OptimizerSlot {
  std::string name;
  Tensor block;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // `step` counts the steps of the run from 1. Asynchronous.
  virtual void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t step) = 0;
  // Empty for an optimizer without state.
  virtual std::vector<OptimizerSlot> slots() const = 0;
};

// Throws a usage error for an unknown kind or values out of range.
void require_sensible(const OptimizerOptions& options);

// Throws as require_sensible does. `backend` is borrowed.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Backend& backend,
                                          const ParameterLayout& layout);

}  // namespace tutti
