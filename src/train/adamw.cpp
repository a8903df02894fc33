#include "optimizer_kinds.hpp"

namespace tutti {
namespace {

class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, const OptimizerParts& parts)
      : options_(options),
        backend_(parts.backend),
        runs_(owned_runs(parts, options.spares_norms_and_biases && options.weight_decay != 0)),
        clip_(options.clip_norm, parts),
        first_moment_(parts),
        second_moment_(parts) {}

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t step) override {
    const Tensor factor = clip_.factor(stream, arena);
    for (const OwnedRun& run : runs_) {
      backend_.adamw_step(stream, {.weights = elements_of(arena.weights(), run.elements),
                                   .gradients = elements_of(arena.gradients(), run.elements),
                                   .first_moment = first_moment_.of(run),
                                   .second_moment = second_moment_.of(run),
                                   .learning_rate = learning_rate,
                                   .beta1 = options_.beta1,
                                   .beta2 = options_.beta2,
                                   .epsilon = options_.epsilon,
                                   .weight_decay = run.spared ? 0 : options_.weight_decay,
                                   .step = step,
                                   .gradient_factor = factor});
    }
  }

  std::vector<OptimizerSlot> slots() const override {
    return {{"first_moment", first_moment_.values}, {"second_moment", second_moment_.values}};
  }

 private:
  OptimizerOptions options_;
  Backend& backend_;
  std::vector<OwnedRun> runs_;
  GradientClip clip_;
  StateBlock first_moment_;
  StateBlock second_moment_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, const OptimizerParts& parts) {
  return std::make_unique<AdamW>(options, parts);
}

}  // namespace tutti
