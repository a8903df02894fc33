#include "optimizer_kinds.hpp"

#include <optional>

namespace tutti {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, const OptimizerParts& parts)
      : options_(options),
        backend_(parts.backend),
        runs_(owned_runs(parts, options.spares_norms_and_biases && options.weight_decay != 0)),
        clip_(options.clip_norm, parts) {
    if (options.momentum != 0) velocity_.emplace(parts);
  }

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t) override {
    const Tensor factor = clip_.factor(stream, arena);
    for (const OwnedRun& run : runs_) {
      backend_.sgd_step(stream, {.weights = elements_of(arena.weights(), run.elements),
                                 .gradients = elements_of(arena.gradients(), run.elements),
                                 .velocity = velocity_ ? velocity_->of(run) : Tensor{},
                                 .learning_rate = static_cast<float>(learning_rate),
                                 .momentum = static_cast<float>(options_.momentum),
                                 .weight_decay = run.spared ? 0 : static_cast<float>(options_.weight_decay),
                                 .nesterov = options_.nesterov,
                                 .gradient_factor = factor});
    }
  }

  std::vector<OptimizerSlot> slots() const override {
    if (!velocity_) return {};
    return {{"velocity", velocity_->values}};
  }

 private:
  OptimizerOptions options_;
  Backend& backend_;
  std::vector<OwnedRun> runs_;
  GradientClip clip_;
  std::optional<StateBlock> velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, const OptimizerParts& parts) {
  return std::make_unique<Sgd>(options, parts);
}

}  // namespace tutti
