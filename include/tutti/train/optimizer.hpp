#pragma once
// How weights follow from gradients. Optimizers mean what PyTorch's mean, and work on what this rank owns of the flat
// block; who passes gradients and weights on between the ranks is not their business.

#include "tutti/backend/backend.hpp"
#include "tutti/base/words.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include <memory>
#include <string>
#include <vector>

namespace tutti {

class Communicator;
class Ownership;

enum class OptimizerKind { sgd, adamw, lars };
constexpr std::array<std::string_view, 3> words_of(OptimizerKind) { return {"sgd", "adamw", "lars"}; }

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;  // of sgd and lars
  double weight_decay = 0;
  bool nesterov = false;
  bool spares_norms_and_biases = false;  // from the decay: only slices of kind weight decay
  double clip_norm = 0;                  // above 0: the greatest norm of all gradients together
  double beta1 = 0.9;                    // of adamw, as epsilon
  double beta2 = 0.999;
  double epsilon = 1e-8;
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
  // Updates the weights that this rank owns, from their gradients; `step` counts such updates of the run from 1.
  // Collective: norms are added up over the ranks. Asynchronous.
  virtual void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t step) = 0;
  // Empty for an optimizer without state.
  virtual std::vector<OptimizerSlot> slots() const = 0;
};

// Throws a usage error for values out of range.
void require_sensible(const OptimizerOptions& options);

// Backend and communicator stay borrowed.
struct OptimizerParts {
  Backend& backend;
  Communicator& communicator;
  const ParameterLayout& layout;
  const Ownership& ownership;
};
// Throws as require_sensible does.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const OptimizerParts& parts);

}  // namespace tutti
