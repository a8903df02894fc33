#include "elements.hpp"
#include "optimizer_kinds.hpp"

#include <optional>

namespace tutti {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout)
      : options_(options),
        backend_(backend),
        runs_(trained_runs(layout, options.spares_norms_and_biases && options.weight_decay != 0)),
        clip_(options.clip_norm, backend, layout) {
    if (options.momentum != 0) velocity_.emplace(backend, layout);
  }

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t) override {
    const Tensor factor = clip_.factor(stream, arena);
    for (const TrainedRun& run : runs_) {
      const auto stretch = [&run](const Tensor& block) { return elements_of(block, run.begin, run.end); };
      backend_.sgd_step(stream, {.weights = stretch(arena.weights()),
                                 .gradients = stretch(arena.gradients()),
                                 .velocity = velocity_ ? stretch(velocity_->values) : Tensor{},
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
  std::vector<TrainedRun> runs_;
  GradientClip clip_;
  std::optional<StateBlock> velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout) {
  return std::make_unique<Sgd>(options, backend, layout);
}

}  // namespace tutti
