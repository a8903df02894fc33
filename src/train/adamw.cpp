#include "elements.hpp"
#include "optimizer_kinds.hpp"

namespace tutti {
namespace {

class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout)
      : weight_decay_(options.weight_decay),
        backend_(backend),
        runs_(trained_runs(layout, options.spares_norms_and_biases && options.weight_decay != 0)),
        clip_(options.clip_norm, backend, layout),
        first_moment_(backend, layout),
        second_moment_(backend, layout) {}

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t step) override {
    const Tensor factor = clip_.factor(stream, arena);
    for (const TrainedRun& run : runs_) {
      const auto stretch = [&run](const Tensor& block) { return elements_of(block, run.begin, run.end); };
      backend_.adamw_step(stream, {.weights = stretch(arena.weights()),
                                   .gradients = stretch(arena.gradients()),
                                   .first_moment = stretch(first_moment_.values),
                                   .second_moment = stretch(second_moment_.values),
                                   .learning_rate = learning_rate,
                                   .weight_decay = run.spared ? 0 : weight_decay_,
                                   .step = step,
                                   .gradient_factor = factor});
    }
  }

  std::vector<OptimizerSlot> slots() const override {
    return {{"first_moment", first_moment_.values}, {"second_moment", second_moment_.values}};
  }

 private:
  double weight_decay_;
  Backend& backend_;
  std::vector<TrainedRun> runs_;
  GradientClip clip_;
  StateBlock first_moment_;
  StateBlock second_moment_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, Backend& backend,
                                      const ParameterLayout& layout) {
  return std::make_unique<AdamW>(options, backend, layout);
}

}  // namespace tutti
