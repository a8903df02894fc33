#include "tutti/train/optimizer.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tutti {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout)
      : options_(options), backend_(backend) {
    if (options.momentum != 0) {
      memory_ = backend.allocate(layout.block_bytes());
      velocity_ = memory_.view(Shape{layout.trained_elements()}, ElementType::f32);
    }
  }

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t) override {
    backend_.sgd_step(stream, {.weights = arena.trained_weights(),
                               .gradients = arena.trained_gradients(),
                               .velocity = velocity_,
                               .learning_rate = static_cast<float>(learning_rate),
                               .momentum = static_cast<float>(options_.momentum),
                               .weight_decay = static_cast<float>(options_.weight_decay),
                               .nesterov = options_.nesterov});
  }

  std::vector<OptimizerSlot> slots() const override {
    if (velocity_.data == nullptr) return {};
    return {{"velocity", velocity_}};
  }

 private:
  OptimizerOptions options_;
  Backend& backend_;
  Buffer memory_;
  Tensor velocity_{nullptr, Shape{0}, ElementType::f32, MemorySpace::host};
};

}  // namespace

void require_sensible(const OptimizerOptions& options) {
  if (options.kind != "sgd") {
    throw Error(ErrorSource::usage, fmt::format("--optimizer {}: this version has sgd", options.kind));
  }
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    throw Error(ErrorSource::usage, fmt::format("--momentum {}: must be at least 0 and below 1", options.momentum));
  }
  if (!(options.weight_decay >= 0 && std::isfinite(options.weight_decay))) {
    throw Error(ErrorSource::usage,
                fmt::format("--weight-decay {}: must be 0 or more, and finite", options.weight_decay));
  }
  if (options.nesterov && options.momentum == 0) {
    throw Error(ErrorSource::usage, "--nesterov wants --momentum above 0");
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Backend& backend,
                                          const ParameterLayout& layout) {
  require_sensible(options);
  return std::make_unique<Sgd>(options, backend, layout);
}

}  // namespace tutti
