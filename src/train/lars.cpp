#include "elements.hpp"
#include "optimizer_kinds.hpp"

#include <algorithm>
#include <iterator>

namespace tutti {
namespace {

constexpr double kTrust = 0.001;

std::vector<ParameterSlice> adapted_slices(const OptimizerOptions& options, const ParameterLayout& layout) {
  std::vector<ParameterSlice> adapted;
  std::ranges::copy_if(layout.trained(), std::back_inserter(adapted), [&](const ParameterSlice& slice) {
    return !options.spares_norms_and_biases || slice.kind == ParameterKind::weight;
  });
  return adapted;
}

// Each tensor's rate follows the ratio of its norm to that of its gradient; spared ones step as with sgd.
class Lars : public Optimizer {
 public:
  Lars(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout)
      : options_(options),
        backend_(backend),
        adapted_(adapted_slices(options, layout)),
        runs_(trained_runs(layout, options.spares_norms_and_biases)),
        clip_(options.clip_norm, backend, layout),
        weight_squares_(backend, adapted_),
        gradient_squares_(backend, adapted_),
        factors_(backend.allocate(adapted_.size() * sizeof(float))),
        velocity_(backend, layout) {}

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t) override {
    const Tensor clip = clip_.factor(stream, arena);
    backend_.trust_factors(
        stream, {.weight_squares = weight_squares_.of(stream, arena.weights()),
                 .gradient_squares = gradient_squares_.of(stream, arena.gradients()),
                 .gradient_factor = clip,
                 .trust = kTrust,
                 .weight_decay = options_.weight_decay,
                 .factors = factors_.view(Shape{static_cast<std::int64_t>(adapted_.size())}, ElementType::f32)});
    SgdStep step{};
    step.learning_rate = static_cast<float>(learning_rate);
    step.momentum = static_cast<float>(options_.momentum);
    step.gradient_factor = clip;
    for (const TrainedRun& run : runs_) {
      if (run.spared) take(stream, arena, step, run);
    }
    step.weight_decay = static_cast<float>(options_.weight_decay);
    for (std::size_t i = 0; i < adapted_.size(); ++i) {
      step.rate_factor = factors_.view(Shape{1}, ElementType::f32, i * sizeof(float));
      take(stream, arena, step, {adapted_[i].offset, adapted_[i].offset + adapted_[i].elements()});
    }
  }

  std::vector<OptimizerSlot> slots() const override { return {{"velocity", velocity_.values}}; }

 private:
  void take(Stream& stream, const ParameterArena& arena, SgdStep step, const TrainedRun& run) {
    step.weights = elements_of(arena.weights(), run.begin, run.end);
    step.gradients = elements_of(arena.gradients(), run.begin, run.end);
    step.velocity = elements_of(velocity_.values, run.begin, run.end);
    backend_.sgd_step(stream, step);
  }

  OptimizerOptions options_;
  Backend& backend_;
  std::vector<ParameterSlice> adapted_;
  std::vector<TrainedRun> runs_;
  GradientClip clip_;
  SliceSquares weight_squares_;
  SliceSquares gradient_squares_;
  Buffer factors_;
  StateBlock velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout) {
  return std::make_unique<Lars>(options, backend, layout);
}

}  // namespace tutti
