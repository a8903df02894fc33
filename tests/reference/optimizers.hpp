#pragma once
// SGD, AdamW and LARS as PyTorch's documentation (and for LARS the paper) writes them, in double, tensor by tensor.

#include "tutti/train/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

namespace tutti::reference {

struct Tensor {
  std::vector<double> values;
  bool spared = false;  // neither decayed nor adapted
  double rate_factor = 1;
  double decay_factor = 1;
};

struct OptimizerRule {
  OptimizerKind kind = OptimizerKind::sgd;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;
  double clip_norm = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};

class Optimizer {
 public:
  Optimizer(OptimizerRule rule, std::vector<Tensor> weights) : rule_(std::move(rule)), weights_(std::move(weights)) {
    std::vector<Tensor> zeros = weights_;
    for (Tensor& tensor : zeros) std::ranges::fill(tensor.values, 0.0);
    if (rule_.kind == OptimizerKind::adamw) {
      state_ = {{"first_moment", zeros}, {"second_moment", zeros}};
    } else if (rule_.momentum != 0 || rule_.kind == OptimizerKind::lars) {
      state_ = {{"velocity", zeros}};
    }
  }

  std::vector<Tensor>& weights() { return weights_; }
  const std::map<std::string, std::vector<Tensor>>& state() const { return state_; }

  void apply(std::vector<Tensor> gradients, double rate, int step) {
    if (rule_.clip_norm > 0) {
      double squares = 0;
      for (const Tensor& tensor : gradients) squares += squared(tensor);
      const double factor = std::min(1.0, rule_.clip_norm / (std::sqrt(squares) + 1e-6));
      for (Tensor& tensor : gradients) {
        for (double& g : tensor.values) g *= factor;
      }
    }
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const double own = rate * weights_[i].rate_factor;
      rule_.kind == OptimizerKind::adamw ? adamw(i, gradients[i], own, step) : descend(i, gradients[i], own);
    }
  }

 private:
  static double squared(const Tensor& tensor) {
    double sum = 0;
    for (const double value : tensor.values) sum += value * value;
    return sum;
  }

  double trust(const Tensor& weight, const Tensor& gradient) const {
    if (rule_.kind != OptimizerKind::lars || weight.spared) return 1;
    const double w = std::sqrt(squared(weight));
    const double g = std::sqrt(squared(gradient));
    return w == 0 || g == 0 ? 1 : 0.001 * w / (g + rule_.weight_decay * w);
  }

  void descend(std::size_t i, const Tensor& gradient, double rate) {
    Tensor& weight = weights_[i];
    const double decay = weight.spared ? 0 : rule_.weight_decay * weight.decay_factor;
    const double local = trust(weight, gradient);
    for (std::size_t k = 0; k < weight.values.size(); ++k) {
      double g = (gradient.values[k] + decay * weight.values[k]) * local;
      if (!state_.empty()) {
        double& v = state_["velocity"][i].values[k];
        v = rule_.momentum * v + g;
        g = rule_.nesterov ? g + rule_.momentum * v : v;
      }
      weight.values[k] -= rate * g;
    }
  }

  void adamw(std::size_t i, const Tensor& gradient, double rate, int step) {
    Tensor& weight = weights_[i];
    for (std::size_t k = 0; k < weight.values.size(); ++k) {
      const double g = gradient.values[k];
      double& m = state_["first_moment"][i].values[k];
      double& v = state_["second_moment"][i].values[k];
      if (!weight.spared) weight.values[k] *= 1 - rate * rule_.weight_decay * weight.decay_factor;
      m = rule_.beta1 * m + (1 - rule_.beta1) * g;
      v = rule_.beta2 * v + (1 - rule_.beta2) * g * g;
      const double corrected = std::sqrt(v / (1 - std::pow(rule_.beta2, step))) + rule_.epsilon;
      weight.values[k] -= rate * m / (1 - std::pow(rule_.beta1, step)) / corrected;
    }
  }

  OptimizerRule rule_;
  std::vector<Tensor> weights_;
  std::map<std::string, std::vector<Tensor>> state_;
};

}  // namespace tutti::reference
