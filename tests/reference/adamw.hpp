#pragma once
// AdamW as PyTorch's documentation writes it, one parameter at a time.

#include <cmath>

namespace tutti::reference {

struct AdamWOptions {
  double learning_rate = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

struct AdamWState {
  double weight = 0;
  double first = 0;
  double second = 0;
};

inline AdamWState adamw_step(const AdamWOptions& options, AdamWState state, double gradient, int step) {
  state.weight -= options.learning_rate * options.weight_decay * state.weight;
  state.first = options.beta1 * state.first + (1 - options.beta1) * gradient;
  state.second = options.beta2 * state.second + (1 - options.beta2) * gradient * gradient;
  const double first = state.first / (1 - std::pow(options.beta1, step));
  const double second = state.second / (1 - std::pow(options.beta2, step));
  state.weight -= options.learning_rate * first / (std::sqrt(second) + options.epsilon);
  return state;
}

}  // namespace tutti::reference
