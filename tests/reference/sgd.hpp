#pragma once
// Stochastic gradient descent as PyTorch's documentation writes it, one parameter at a time.

namespace tutti::reference {

struct SgdOptions {
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
};

struct SgdState {
  double weight = 0;
  double velocity = 0;
};

inline SgdState sgd_step(const SgdOptions& options, SgdState state, double gradient) {
  if (options.weight_decay != 0) gradient += options.weight_decay * state.weight;
  if (options.momentum != 0) {
    state.velocity = options.momentum * state.velocity + gradient;
    gradient = options.nesterov ? gradient + options.momentum * state.velocity : state.velocity;
  }
  state.weight -= options.learning_rate * gradient;
  return state;
}

}  // namespace tutti::reference
