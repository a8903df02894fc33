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

std::vector<OwnedPiece> pieces_of(const Ownership& ownership, const std::vector<ParameterSlice>& slices) {
  std::vector<IndexRange> ranges;
  for (const ParameterSlice& slice : slices) ranges.push_back({slice.offset, slice.offset + slice.elements()});
  return ownership.pieces_of(ranges);
}

// Each tensor's rate follows the ratio of its norm to that of its gradient; spared ones step as with sgd.
class Lars : public Optimizer {
 public:
  Lars(const OptimizerOptions& options, const OptimizerParts& parts)
      : options_(options),
        backend_(parts.backend),
        adapted_(adapted_slices(options, parts.layout)),
        pieces_(pieces_of(parts.ownership, adapted_)),
        runs_(owned_runs(parts, options.spares_norms_and_biases)),
        clip_(options.clip_norm, parts),
        weight_squares_(parts, adapted_),
        gradient_squares_(parts, adapted_),
        factors_(backend_.allocate(adapted_.size() * sizeof(float))),
        velocity_(parts) {}

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
    for (const OwnedRun& run : runs_) {
      if (run.spared) take(stream, arena, step, run);
    }
    step.weight_decay = static_cast<float>(options_.weight_decay);
    for (const OwnedPiece& piece : pieces_) {
      step.rate_factor = factors_.view(Shape{1}, ElementType::f32, piece.range * sizeof(float));
      take(stream, arena, step, piece);
    }
  }

  std::vector<OptimizerSlot> slots() const override { return {{"velocity", velocity_.values}}; }

 private:
  void take(Stream& stream, const ParameterArena& arena, SgdStep step, const OwnedPiece& piece) {
    step.weights = elements_of(arena.weights(), piece.elements);
    step.gradients = elements_of(arena.gradients(), piece.elements);
    step.velocity = velocity_.of(piece);
    backend_.sgd_step(stream, step);
  }

  OptimizerOptions options_;
  Backend& backend_;
  std::vector<ParameterSlice> adapted_;
  std::vector<OwnedPiece> pieces_;  // of the adapted slices
  std::vector<OwnedRun> runs_;
  GradientClip clip_;
  SliceSquares weight_squares_;
  SliceSquares gradient_squares_;
  Buffer factors_;
  StateBlock velocity_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const OptimizerOptions& options, const OptimizerParts& parts) {
  return std::make_unique<Lars>(options, parts);
}

}  // namespace tutti
