#pragma once
// SGD, AdamW and LARS, with the meaning that PyTorch gives them. They update what this rank owns of the flat block;
// the exchange moves gradients and weights between ranks.

#include "tutti/backend/backend.hpp"
#include "tutti/base/enum_names.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti {

class Communicator;
class Network;
class Ownership;

enum class OptimizerKind { sgd, adamw, lars };
constexpr std::array<std::string_view, 3> enum_names(OptimizerKind) { return {"sgd", "adamw", "lars"}; }

// A factor of --lr-factors or --decay-factors, for the parameters that the pattern matches.
struct ParameterFactor {
  std::string pattern;
  std::int64_t from_epoch = 0;  // completed epochs before it applies
  double factor = 1;
  friend bool operator==(const ParameterFactor&, const ParameterFactor&) = default;
};
// "*/shift=64,stem@3=0": PATTERN=FACTOR or PATTERN@EPOCHS=FACTOR, separated by commas. Throw a usage error.
std::vector<ParameterFactor> parse_lr_factors(const std::string& text);
std::vector<ParameterFactor> parse_decay_factors(const std::string& text);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0.9;  // of sgd and lars
  double weight_decay = 0;
  bool nesterov = false;
  bool exempts_norms_and_biases = false;  // decays only slices of kind weight
  double clip_norm = 0;                   // limit of the norm of all gradients; 0: none
  double beta1 = 0.9;                     // this, beta2 and epsilon: of adamw
  double beta2 = 0.999;
  double epsilon = 1e-8;
  // Of the factors that match a parameter and apply in an epoch, the last counts.
  std::vector<ParameterFactor> lr_factors{};
  std::vector<ParameterFactor> decay_factors{};  // apply in every epoch
};

// The number of blocks of state, each of an f32 per trained element.
std::size_t optimizer_slots(const OptimizerOptions& options);

// One block of optimizer state, named as in a checkpoint. It covers the trained elements that this rank owns, range
// after range.
struct OptimizerSlot {
  std::string name;
  Tensor block;
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // Sets what the next apply() uses; `step` counts the updates of the run from 1, `epoch` from 0. Asynchronous.
  virtual void set_step(Stream& stream, double learning_rate, std::int64_t step, std::int64_t epoch) = 0;
  // Updates the weights that this rank owns from their gradients. Unless ownership is sharded, this can be captured;
  // the graph then uses the last set_step() before it is launched. Otherwise it is collective, since norms are summed
  // over the ranks. Asynchronous.
  virtual void apply(Stream& stream, const ParameterArena& arena) = 0;
  // Whether a gradient is read once, by the update of its own element, so that update() may take its place.
  virtual bool reads_gradients_once() const = 0;
  // As apply() with unfinished gradients, and a refresh of the layers. Only if it reads gradients once. Asynchronous.
  virtual void update(Stream& stream, const ParameterArena& arena, const UnfinishedUpdate& update) = 0;
  // Empty for an optimizer without state.
  virtual std::vector<OptimizerSlot> slots() const = 0;
};

// The first layer that needs a backward pass in this epoch and later: it has statistics, or parameters whose learning
// rate is not 0 from now on, and is not frozen.
std::size_t first_trained_layer(const Network& network, const OptimizerOptions& options, std::int64_t epoch);

// Throws a usage error for values out of range.
void validate(const OptimizerOptions& options);
// Throws a usage error for a factor whose pattern matches no parameter.
void require_matches(const OptimizerOptions& options, const ParameterLayout& layout);

// All borrowed.
struct OptimizerContext {
  Backend& backend;
  Communicator& communicator;
  const ParameterLayout& layout;
  const Ownership& ownership;
};
// Throws the errors of validate() and require_matches().
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const OptimizerContext& context);

}  // namespace tutti
