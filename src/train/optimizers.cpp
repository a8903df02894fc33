#include "tutti/base/error.hpp"
#include "tutti/train/optimizer.hpp"

#include "norms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

namespace tutti {
namespace {

// Adjacent trained elements that this rank owns and updates by one rule, padding included.
struct OwnedRun : OwnedPiece {
  bool exempt = false;
};
// All trained elements that this rank owns, in order; one run per owned range when no kind is exempt.
std::vector<OwnedRun> owned_runs(const OptimizerContext& context, bool exempts_norms_and_biases) {
  std::vector<IndexRange> ranges;
  std::vector<bool> exempt;
  for (const ParameterSlice& slice : context.layout.trained()) {
    const bool is_exempt = exempts_norms_and_biases && slice.kind != ParameterKind::weight;
    if (!ranges.empty()) ranges.back().end = slice.offset;
    if (!ranges.empty() && exempt.back() == is_exempt) continue;
    ranges.push_back({slice.offset, 0});
    exempt.push_back(is_exempt);
  }
  if (!ranges.empty()) ranges.back().end = context.layout.trained_elements();
  std::vector<OwnedRun> runs;
  for (const OwnedPiece& piece : context.ownership.pieces_of(ranges)) runs.push_back({piece, exempt[piece.range]});
  return runs;
}

// State for the trained elements that this rank owns.
struct StateBlock {
  explicit StateBlock(const OptimizerContext& context) {
    const IndexRange trained{0, context.layout.trained_elements()};
    std::int64_t elements = 0;
    for (const OwnedPiece& piece : context.ownership.pieces_of({&trained, 1})) elements = piece.packed.end;
    memory = context.backend.allocate(static_cast<std::size_t>(elements) * sizeof(float));
    values = memory.view(Shape{elements}, ElementType::f32);
  }
  Tensor view(const OwnedPiece& piece) const { return elements_of(values, piece.packed); }
  Buffer memory;
  Tensor values;
};

class Sgd : public Optimizer {
 public:
  Sgd(const OptimizerOptions& options, const OptimizerContext& context)
      : options_(options),
        backend_(context.backend),
        runs_(owned_runs(context, options.exempts_norms_and_biases && options.weight_decay != 0)),
        clip_(options.clip_norm, context) {
    if (options.momentum != 0) velocity_.emplace(context);
  }

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t) override {
    const Tensor factor = clip_.factor(stream, arena);
    for (const OwnedRun& run : runs_) {
      backend_.sgd_step(stream, {.weights = elements_of(arena.weights(), run.elements),
                                 .gradients = elements_of(arena.gradients(), run.elements),
                                 .velocity = velocity_ ? velocity_->view(run) : Tensor{},
                                 .learning_rate = static_cast<float>(learning_rate),
                                 .momentum = static_cast<float>(options_.momentum),
                                 .weight_decay = run.exempt ? 0 : static_cast<float>(options_.weight_decay),
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

class AdamW : public Optimizer {
 public:
  AdamW(const OptimizerOptions& options, const OptimizerContext& context)
      : options_(options),
        backend_(context.backend),
        runs_(owned_runs(context, options.exempts_norms_and_biases && options.weight_decay != 0)),
        clip_(options.clip_norm, context),
        first_moment_(context),
        second_moment_(context) {}

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t step) override {
    const Tensor factor = clip_.factor(stream, arena);
    for (const OwnedRun& run : runs_) {
      backend_.adamw_step(stream, {.weights = elements_of(arena.weights(), run.elements),
                                   .gradients = elements_of(arena.gradients(), run.elements),
                                   .first_moment = first_moment_.view(run),
                                   .second_moment = second_moment_.view(run),
                                   .learning_rate = learning_rate,
                                   .beta1 = options_.beta1,
                                   .beta2 = options_.beta2,
                                   .epsilon = options_.epsilon,
                                   .weight_decay = run.exempt ? 0 : options_.weight_decay,
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

constexpr double kTrust = 0.001;

std::vector<ParameterSlice> adapted_slices(const OptimizerOptions& options, const ParameterLayout& layout) {
  std::vector<ParameterSlice> adapted;
  std::ranges::copy_if(layout.trained(), std::back_inserter(adapted), [&](const ParameterSlice& slice) {
    return !options.exempts_norms_and_biases || slice.kind == ParameterKind::weight;
  });
  return adapted;
}

std::vector<OwnedPiece> pieces_of_slices(const Ownership& ownership, const std::vector<ParameterSlice>& slices) {
  std::vector<IndexRange> ranges;
  for (const ParameterSlice& slice : slices) ranges.push_back({slice.offset, slice.offset + slice.elements()});
  return ownership.pieces_of(ranges);
}

// Scales the learning rate of each tensor by the ratio of its norm to that of its gradient; exempt tensors are updated
// as by sgd.
class Lars : public Optimizer {
 public:
  Lars(const OptimizerOptions& options, const OptimizerContext& context)
      : options_(options),
        backend_(context.backend),
        adapted_(adapted_slices(options, context.layout)),
        pieces_(pieces_of_slices(context.ownership, adapted_)),
        runs_(owned_runs(context, options.exempts_norms_and_biases)),
        clip_(options.clip_norm, context),
        weight_squares_(context, adapted_),
        gradient_squares_(context, adapted_),
        factors_(backend_.allocate(adapted_.size() * sizeof(float))),
        velocity_(context) {}

  void apply(Stream& stream, const ParameterArena& arena, double learning_rate, std::int64_t) override {
    const Tensor clip = clip_.factor(stream, arena);
    backend_.trust_factors(
        stream, {.weight_squares = weight_squares_.compute(stream, arena.weights()),
                 .gradient_squares = gradient_squares_.compute(stream, arena.gradients()),
                 .gradient_factor = clip,
                 .trust = kTrust,
                 .weight_decay = options_.weight_decay,
                 .factors = factors_.view(Shape{static_cast<std::int64_t>(adapted_.size())}, ElementType::f32)});
    SgdStep step{};
    step.learning_rate = static_cast<float>(learning_rate);
    step.momentum = static_cast<float>(options_.momentum);
    step.gradient_factor = clip;
    for (const OwnedRun& run : runs_) {
      if (run.exempt) update(stream, arena, step, run);
    }
    step.weight_decay = static_cast<float>(options_.weight_decay);
    for (const OwnedPiece& piece : pieces_) {
      step.rate_factor = factors_.view(Shape{1}, ElementType::f32, piece.range * sizeof(float));
      update(stream, arena, step, piece);
    }
  }

  std::vector<OptimizerSlot> slots() const override { return {{"velocity", velocity_.values}}; }

 private:
  void update(Stream& stream, const ParameterArena& arena, SgdStep step, const OwnedPiece& piece) {
    step.weights = elements_of(arena.weights(), piece.elements);
    step.gradients = elements_of(arena.gradients(), piece.elements);
    step.velocity = velocity_.view(piece);
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

void validate(const OptimizerOptions& options) {
  const auto require = [](bool sensible, const char* option, double value, const char* range) {
    if (!sensible) throw Error(ErrorSource::usage, fmt::format("--{} {}: must be {}", option, value, range));
  };
  require(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum, "at least 0 and below 1");
  require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight-decay", options.weight_decay,
          "0 or more, and finite");
  require(options.clip_norm >= 0 && std::isfinite(options.clip_norm), "clip-norm", options.clip_norm,
          "0 (no limit) or more, and finite");
  require(options.beta1 >= 0 && options.beta1 < 1, "adam-beta1", options.beta1, "at least 0 and below 1");
  require(options.beta2 >= 0 && options.beta2 < 1, "adam-beta2", options.beta2, "at least 0 and below 1");
  require(options.epsilon >= 1e-30 && options.epsilon <= 1, "adam-epsilon", options.epsilon, "1e-30 to 1");
  const OptimizerOptions usual;
  const bool is_usual =
      options.beta1 == usual.beta1 && options.beta2 == usual.beta2 && options.epsilon == usual.epsilon;
  if (options.kind != OptimizerKind::adamw && !is_usual) {
    throw Error(ErrorSource::usage, fmt::format("--adam-beta1, --adam-beta2 and --adam-epsilon belong to adamw, but "
                                                "--optimizer is {}: leave them out",
                                                name_of(options.kind)));
  }
  if (options.nesterov && options.kind != OptimizerKind::sgd) {
    throw Error(
        ErrorSource::usage,
        fmt::format("--nesterov belongs to sgd, but --optimizer is {}: leave one of them out", name_of(options.kind)));
  }
  if (options.nesterov && options.momentum == 0) {
    throw Error(ErrorSource::usage, "--nesterov requires --momentum above 0");
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const OptimizerContext& context) {
  validate(options);
  // If rank 0 owns everything, the other ranks have nothing to update and no norms to sum.
  const bool has_nothing = context.ownership.owners() == Owners::root && context.communicator.rank() != 0;
  const ParameterLayout nothing;
  const OptimizerContext owned{context.backend, context.communicator, has_nothing ? nothing : context.layout,
                               context.ownership};
  if (options.kind == OptimizerKind::adamw) return std::make_unique<AdamW>(options, owned);
  if (options.kind == OptimizerKind::lars) return std::make_unique<Lars>(options, owned);
  return std::make_unique<Sgd>(options, owned);
}

}  // namespace tutti
