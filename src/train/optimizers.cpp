#include "tutti/base/error.hpp"
#include "tutti/train/optimizer.hpp"

#include "exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// The sums of squares of some slices of a block, in device memory. If ownership is sharded, each rank sums the blocks
// that it owns and the sums are all-gathered, which gives the same bits as whole slices.
class SliceSquares {
 public:
  SliceSquares(const OptimizerContext& context, std::span<const ParameterSlice> slices);
  // f64 [slices], valid until the next call. Collective if ownership is sharded. Asynchronous.
  Tensor compute(Stream& stream, const Tensor& block);

 private:
  struct OwnedBlocks {
    std::vector<IndexRange> blocks;
    Tensor sums;
  };
  void sum(Stream& stream, const Tensor& block, const std::vector<IndexRange>& ranges, const Tensor& sums);

  Backend& backend_;
  Communicator& communicator_;
  bool sharded_;
  std::vector<IndexRange> slices_;
  OwnedTensor sums_;
  // The rest is empty if each rank owns whole slices.
  OwnedTensor block_sums_;
  OwnedTensor block_ends_;  // by slice
  std::vector<OwnedBlocks> owned_;
  std::vector<Tensor> tensors_;
};

SliceSquares::SliceSquares(const OptimizerContext& context, std::span<const ParameterSlice> slices)
    : backend_(context.backend),
      communicator_(context.communicator),
      sharded_(context.ownership.owners() == Owners::sharded && !slices.empty()),
      slices_(ranges_of(slices)),
      sums_(backend_, std::ssize(slices), ElementType::f64) {
  if (!sharded_) return;
  std::vector<IndexRange> blocks;
  std::vector<std::int64_t> ends;
  for (const IndexRange& slice : slices_) {
    for (std::int64_t begin = slice.begin; begin < slice.end; begin += kNormBlock) {
      blocks.push_back({begin, std::min(begin + kNormBlock, slice.end)});
    }
    ends.push_back(std::ssize(blocks));
  }
  block_sums_ = OwnedTensor(communicator_, std::ssize(blocks), ElementType::f64);
  block_ends_ = upload(backend_, std::move(ends));
  for (const IndexRange& owned : context.ownership.owned()) {
    const auto first = std::ranges::lower_bound(blocks, owned.begin, {}, &IndexRange::begin);
    const auto last = std::ranges::lower_bound(blocks, owned.end, {}, &IndexRange::begin);
    if (first == last) continue;
    owned_.push_back({{first, last}, elements_of(block_sums_.values, {first - blocks.begin(), last - blocks.begin()})});
  }
}

void SliceSquares::sum(Stream& stream, const Tensor& block, const std::vector<IndexRange>& ranges, const Tensor& sums) {
  tensors_.clear();
  for (const IndexRange& range : ranges) tensors_.push_back(elements_of(block, range));
  backend_.sum_squares(stream, tensors_, sums);
}

Tensor SliceSquares::compute(Stream& stream, const Tensor& block) {
  if (!sharded_) {
    sum(stream, block, slices_, sums_.values);
    return sums_.values;
  }
  // The bits of each sum are added to zeros as an integer, so that the all_reduce gathers them.
  backend_.fill_zero(stream, block_sums_.values);
  for (const auto& [blocks, sums] : owned_) sum(stream, block, blocks, sums);
  Tensor bits = block_sums_.values;
  bits.type = ElementType::i64;
  communicator_.all_reduce(bits, stream);
  communicator_.finish(stream);
  backend_.sum_runs(stream, block_sums_.values, block_ends_.values, sums_.values);
  return sums_.values;
}

// Whether weight decay and the norms of lars leave the slice out. The update of a frozen slice, whose gradient is zero,
// is zero without them.
bool is_exempt(const OptimizerOptions& options, const ParameterSlice& slice) {
  return slice.frozen || (options.exempts_norms_and_biases && slice.kind != ParameterKind::weight);
}

std::vector<std::string> slot_names(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::adamw) return {"first_moment", "second_moment"};
  if (options.kind == OptimizerKind::sgd && options.momentum == 0) return {};
  return {"velocity"};
}

// The updates of flat blocks. A run is a range of adjacent trained elements that this rank owns and updates by one
// rule, padding included.
class FlatOptimizer : public Optimizer {
 public:
  FlatOptimizer(const OptimizerOptions& options, const OptimizerContext& context)
      : options_(options),
        backend_(context.backend),
        values_(backend_, kMostValues, ElementType::f32),
        clip_squares_(context, options.clip_norm == 0 ? std::span<const ParameterSlice>{} : context.layout.trained()),
        clip_factor_(backend_, 1, ElementType::f32) {
    // The ranges of elements that are updated by one rule, in order; there is a run for each owned piece of them.
    const bool has_rules = options.weight_decay != 0 || options.kind == OptimizerKind::lars;
    const auto ends = context.layout.slice_ends();
    std::vector<IndexRange> ranges;
    for (std::size_t i = 0; i < context.layout.trained().size(); ++i) {
      const ParameterSlice& slice = context.layout.trained()[i];
      const bool exempt = has_rules && is_exempt(options, slice);
      if (ranges.empty() || exempt_.back() != exempt) {
        ranges.push_back({slice.offset, 0});
        exempt_.push_back(exempt);
      }
      ranges.back().end = ends[i];
    }
    runs_ = context.ownership.pieces_of(ranges);
    const std::int64_t owned = runs_.empty() ? 0 : runs_.back().packed.end;
    for (const std::string& name : slot_names(options)) {
      const OwnedTensor& state = state_.emplace_back(backend_, owned, ElementType::f32);
      slots_.push_back({name, state.values});
    }
  }

  std::vector<OptimizerSlot> slots() const override { return slots_; }

 protected:
  // The numbers of a step in the processor's memory. They are copied only if they changed.
  static constexpr std::int64_t kMostValues = 16;
  void set_values(Stream& stream, std::vector<float> numbers) {
    if (numbers == values_on_host_) return;
    values_on_host_ = std::move(numbers);
    const auto count = std::ssize(values_on_host_);
    backend_.copy(stream, values({0, count}),
                  {values_on_host_.data(), Shape{count}, ElementType::f32, MemorySpace::host});
  }
  Tensor values(IndexRange range) const { return elements_of(values_.values, range); }

  // The factor that limits the global norm of the gradients, f32 [1]; empty without a limit. It is collective and
  // asynchronous as SliceSquares::compute is.
  Tensor clip_factor(Stream& stream, const ParameterArena& arena) {
    if (options_.clip_norm == 0) return {};
    const Tensor squares = clip_squares_.compute(stream, arena.gradients());
    backend_.clip_factor(stream, squares, options_.clip_norm, clip_factor_.values);
    return clip_factor_.values;
  }
  bool is_exempt_run(const OwnedPiece& run) const { return exempt_[run.range]; }
  Tensor state(std::size_t slot, const OwnedPiece& piece) const {
    return elements_of(slots_[slot].block, piece.packed);
  }

  OptimizerOptions options_;
  Backend& backend_;
  std::vector<OwnedPiece> runs_;
  std::vector<OptimizerSlot> slots_;  // views of the state

 private:
  OwnedTensor values_;
  std::vector<float> values_on_host_;
  SliceSquares clip_squares_;
  OwnedTensor clip_factor_;
  std::vector<bool> exempt_;  // by OwnedPiece::range
  std::vector<OwnedTensor> state_;
};

class Sgd : public FlatOptimizer {
 public:
  using FlatOptimizer::FlatOptimizer;

  void set_step(Stream& stream, double learning_rate, std::int64_t /*step*/) override {
    learning_rate_ = static_cast<float>(learning_rate);
    set_values(stream, {learning_rate_});
  }

  void apply(Stream& stream, const ParameterArena& arena) override {
    const Tensor clip = clip_factor(stream, arena);
    std::vector<SgdStep> steps;
    for (const OwnedPiece& run : runs_) {
      steps.push_back(step_of(arena, run, clip));
      if (!is_exempt_run(run)) steps.back().weight_decay = static_cast<float>(options_.weight_decay);
    }
    backend_.sgd_steps(stream, steps);
  }

 protected:
  // Without weight decay.
  SgdStep step_of(const ParameterArena& arena, const OwnedPiece& piece, const Tensor& gradient_factor) const {
    SgdStep step{};
    step.weights = elements_of(arena.weights(), piece.elements);
    step.gradients = elements_of(arena.gradients(), piece.elements);
    if (!slots_.empty()) step.velocity = state(0, piece);
    step.learning_rate = learning_rate_;
    step.rate = values({0, 1});
    step.momentum = static_cast<float>(options_.momentum);
    step.nesterov = options_.nesterov;
    step.gradient_factor = gradient_factor;
    return step;
  }

 private:
  float learning_rate_ = 0;
};

class AdamW final : public FlatOptimizer {
 public:
  using FlatOptimizer::FlatOptimizer;

  // The factors of exempt runs follow those of the others.
  void set_step(Stream& stream, double learning_rate, std::int64_t step) override {
    step_.learning_rate = learning_rate;
    step_.beta1 = options_.beta1;
    step_.beta2 = options_.beta2;
    step_.epsilon = options_.epsilon;
    step_.step = step;
    std::vector<float> numbers;
    for (const bool exempt : {false, true}) {
      step_.weight_decay = weight_decay(exempt);
      std::ranges::copy(std::bit_cast<std::array<float, 8>>(factors_of(step_)), std::back_inserter(numbers));
    }
    set_values(stream, std::move(numbers));
  }

  void apply(Stream& stream, const ParameterArena& arena) override {
    const Tensor clip = clip_factor(stream, arena);
    std::vector<AdamWStep> steps;
    for (const OwnedPiece& run : runs_) {
      const bool exempt = is_exempt_run(run);
      AdamWStep& step = steps.emplace_back(step_);
      step.gradient_factor = clip;
      step.weights = elements_of(arena.weights(), run.elements);
      step.gradients = elements_of(arena.gradients(), run.elements);
      step.first_moment = state(0, run);
      step.second_moment = state(1, run);
      step.weight_decay = weight_decay(exempt);
      step.factors = values(exempt ? IndexRange{8, 16} : IndexRange{0, 8});
    }
    backend_.adamw_steps(stream, steps);
  }

 private:
  double weight_decay(bool exempt) const { return exempt ? 0 : options_.weight_decay; }

  AdamWStep step_{};
};

constexpr double kTrust = 0.001;

// Scales the learning rate of each tensor by the ratio of its norm to that of its gradient; exempt tensors are updated
// as by sgd.
class Lars final : public Sgd {
 public:
  Lars(const OptimizerOptions& options, const OptimizerContext& context)
      : Sgd(options, context),
        adapted_(adapted_slices(options, context.layout)),
        pieces_(context.ownership.pieces_of(ranges_of(adapted_))),
        weight_squares_(context, adapted_),
        gradient_squares_(context, adapted_),
        factors_(backend_, std::ssize(adapted_), ElementType::f32) {}

  void apply(Stream& stream, const ParameterArena& arena) override {
    const Tensor clip = clip_factor(stream, arena);
    backend_.trust_factors(stream, {.weight_squares = weight_squares_.compute(stream, arena.weights()),
                                    .gradient_squares = gradient_squares_.compute(stream, arena.gradients()),
                                    .gradient_factor = clip,
                                    .trust = kTrust,
                                    .weight_decay = options_.weight_decay,
                                    .factors = factors_.values});
    std::vector<SgdStep> steps;
    for (const OwnedPiece& run : runs_) {
      if (is_exempt_run(run)) steps.push_back(step_of(arena, run, clip));
    }
    for (const OwnedPiece& piece : pieces_) {
      const auto tensor = static_cast<std::int64_t>(piece.range);
      SgdStep& step = steps.emplace_back(step_of(arena, piece, clip));
      step.weight_decay = static_cast<float>(options_.weight_decay);
      step.rate_factor = elements_of(factors_.values, {tensor, tensor + 1});
    }
    backend_.sgd_steps(stream, steps);
  }

 private:
  static std::vector<ParameterSlice> adapted_slices(const OptimizerOptions& options, const ParameterLayout& layout) {
    std::vector<ParameterSlice> adapted;
    std::ranges::copy_if(layout.trained(), std::back_inserter(adapted),
                         [&](const ParameterSlice& slice) { return !is_exempt(options, slice); });
    return adapted;
  }

  std::vector<ParameterSlice> adapted_;
  std::vector<OwnedPiece> pieces_;  // of the adapted slices
  SliceSquares weight_squares_;
  SliceSquares gradient_squares_;
  OwnedTensor factors_;
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
