#include "tutti/base/error.hpp"
#include "tutti/nn/network.hpp"
#include "tutti/train/optimizer.hpp"

#include "exchange.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <iterator>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// How the optimizer updates a slice. Adjacent slices with equal rules are updated together.
struct UpdateRule {
  std::vector<ParameterFactor> rate_factors{};  // those that match
  double weight_decay = 0;
  bool is_adapted = false;  // by the ratio of norms of lars

  double rate(double learning_rate, std::int64_t epoch) const {
    double factor = 1;
    for (const ParameterFactor& each : rate_factors) factor = epoch >= each.from_epoch ? each.factor : factor;
    return learning_rate * factor;
  }
  friend bool operator==(const UpdateRule&, const UpdateRule&) = default;
};

UpdateRule rule_of(const OptimizerOptions& options, const ParameterSlice& slice) {
  const auto matches_slice = [&](const ParameterFactor& factor) { return matches(factor.pattern, slice); };
  UpdateRule rule;
  std::ranges::copy_if(options.lr_factors, std::back_inserter(rule.rate_factors), matches_slice);
  if (options.exempts_norms_and_biases && slice.kind != ParameterKind::weight) return rule;
  rule.is_adapted = options.kind == OptimizerKind::lars;
  rule.weight_decay = options.weight_decay;
  for (const ParameterFactor& each : options.decay_factors) {
    if (matches_slice(each)) rule.weight_decay = options.weight_decay * each.factor;
  }
  return rule;
}

// A backward pass also writes statistics. If the rate is 0 only until a later epoch, the optimizer's state is updated.
bool needs_backward(const OptimizerOptions& options, const ParameterSlice& slice, std::int64_t epoch) {
  if (slice.frozen || is_statistic(slice.kind)) return !slice.frozen;
  const UpdateRule rule = rule_of(options, slice);
  const auto is_later = [&](const ParameterFactor& each) { return each.from_epoch > epoch && each.factor != 0; };
  return rule.rate(1, epoch) != 0 || std::ranges::any_of(rule.rate_factors, is_later);
}

std::vector<ParameterSlice> updated_slices(const ParameterLayout& layout) {
  std::vector<ParameterSlice> updated;
  std::ranges::copy_if(layout.trained(), std::back_inserter(updated), std::not_fn(&ParameterSlice::frozen));
  return updated;
}

std::vector<std::string> slot_names(const OptimizerOptions& options) {
  if (options.kind == OptimizerKind::adamw) return {"first_moment", "second_moment"};
  if (options.kind == OptimizerKind::sgd && options.momentum == 0) return {};
  return {"velocity"};
}

// The norms that optimizers need: the sums of squares of some slices of a block, in device memory. If ownership is
// sharded, each rank sums the blocks that it owns and the sums are all-gathered, which gives the same bits as whole
// slices.
class SliceSquares {
 public:
  SliceSquares(const OptimizerContext& context, std::span<const ParameterSlice> slices)
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
      const IndexRange numbers{first - blocks.begin(), last - blocks.begin()};
      owned_.push_back({{first, last}, elements_of(block_sums_.values, numbers)});
    }
  }

  // f64 [slices], valid until the next call. Collective if ownership is sharded. Asynchronous.
  Tensor compute(Stream& stream, const Tensor& block) {
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

 private:
  struct OwnedBlocks {
    std::vector<IndexRange> blocks;
    Tensor sums;
  };

  void sum(Stream& stream, const Tensor& block, const std::vector<IndexRange>& ranges, const Tensor& sums) {
    tensors_.clear();
    for (const IndexRange& range : ranges) tensors_.push_back(elements_of(block, range));
    backend_.sum_squares(stream, tensors_, sums);
  }

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

// The updates of flat blocks. A run is a range of adjacent trained elements that this rank owns and updates by one
// rule, padding included.
class FlatOptimizer : public Optimizer {
 public:
  FlatOptimizer(const OptimizerOptions& options, const OptimizerContext& context)
      : options_(options),
        backend_(context.backend),
        clip_squares_(context, options.clip_norm == 0 ? std::vector<ParameterSlice>{} : updated_slices(context.layout)),
        clip_factor_(backend_, 1, ElementType::f32) {
    // The ranges of elements that are updated by one rule, in order; there is a run for each owned piece of them.
    const auto ends = context.layout.slice_ends();
    std::vector<IndexRange> ranges;
    for (std::size_t i = 0; i < context.layout.trained().size(); ++i) {
      const ParameterSlice& slice = context.layout.trained()[i];
      if (slice.frozen) continue;
      const std::size_t rule = number_of(rule_of(options, slice));
      if (ranges.empty() || rule_of_range_.back() != rule || ranges.back().end != slice.offset) {
        ranges.push_back({slice.offset, 0});
        rule_of_range_.push_back(rule);
      }
      ranges.back().end = ends[i];
    }
    values_ = OwnedTensor(backend_, kMostValues * std::ssize(rules_), ElementType::f32);
    runs_ = context.ownership.pieces_of(ranges);
    const IndexRange trained{0, context.layout.trained_elements()};
    const std::vector<OwnedPiece> pieces = context.ownership.pieces_of({&trained, 1});
    const std::int64_t owned = pieces.empty() ? 0 : pieces.back().packed.end;
    for (const std::string& name : slot_names(options)) {
      const OwnedTensor& state = state_.emplace_back(backend_, owned, ElementType::f32);
      slots_.push_back({name, state.values});
    }
  }

  std::vector<OptimizerSlot> slots() const override { return slots_; }
  bool reads_gradients_once() const override { return options_.clip_norm == 0 && options_.kind != OptimizerKind::lars; }

 protected:
  // The numbers of a step in the processor's memory, rule by rule. They are copied only if they changed.
  static constexpr std::int64_t kMostValues = 8;  // of a rule
  void set_values(Stream& stream, std::vector<float> numbers) {
    if (numbers == values_on_host_) return;
    values_on_host_ = std::move(numbers);
    const auto count = std::ssize(values_on_host_);
    backend_.copy(stream, values({0, count}), {values_on_host_.data(), Shape{count}, ElementType::f32});
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
  std::size_t number_of(const UpdateRule& rule) {
    const auto found = std::ranges::find(rules_, rule);
    const auto number = static_cast<std::size_t>(found - rules_.begin());
    if (found == rules_.end()) rules_.push_back(rule);
    return number;
  }
  std::size_t rule_of_run(const OwnedPiece& run) const { return rule_of_range_[run.range]; }
  Tensor state(std::size_t slot, const OwnedPiece& piece) const {
    return elements_of(slots_[slot].block, piece.packed);
  }

  OptimizerOptions options_;
  Backend& backend_;
  std::vector<UpdateRule> rules_;
  std::vector<OwnedPiece> runs_;
  std::vector<OptimizerSlot> slots_;  // views of the state

 private:
  OwnedTensor values_;
  std::vector<float> values_on_host_;
  SliceSquares clip_squares_;
  OwnedTensor clip_factor_;
  std::vector<std::size_t> rule_of_range_;  // by OwnedPiece::range
  std::vector<OwnedTensor> state_;
};

class Sgd : public FlatOptimizer {
 public:
  using FlatOptimizer::FlatOptimizer;

  void set_step(Stream& stream, double learning_rate, std::int64_t /*step*/, std::int64_t epoch) override {
    rates_.clear();
    for (const UpdateRule& rule : rules_) rates_.push_back(static_cast<float>(rule.rate(learning_rate, epoch)));
    set_values(stream, rates_);
  }

  void apply(Stream& stream, const ParameterArena& arena) override {
    backend_.sgd_steps(stream, steps_of(arena, clip_factor(stream, arena)));
  }

  void update(Stream& stream, const ParameterArena& arena, const UnfinishedUpdate& update) override {
    backend_.update(stream, update, steps_of(arena, {}));
  }

 protected:
  std::vector<SgdStep> steps_of(const ParameterArena& arena, const Tensor& clip) const {
    std::vector<SgdStep> steps;
    for (const OwnedPiece& run : runs_) steps.push_back(step_of(arena, run, rule_of_run(run), clip));
    return steps;
  }

  SgdStep step_of(const ParameterArena& arena, const OwnedPiece& piece, std::size_t rule, const Tensor& clip) const {
    const auto number = static_cast<std::int64_t>(rule);
    SgdStep step{};
    step.weights = elements_of(arena.weights(), piece.elements);
    step.gradients = elements_of(arena.gradients(), piece.elements);
    if (!slots_.empty()) step.velocity = state(0, piece);
    step.learning_rate = rates_[rule];
    step.rate = values({number, number + 1});
    step.weight_decay = static_cast<float>(rules_[rule].weight_decay);
    step.momentum = static_cast<float>(options_.momentum);
    step.nesterov = options_.nesterov;
    step.gradient_factor = clip;
    return step;
  }

 private:
  std::vector<float> rates_;  // by rule
};

class AdamW final : public FlatOptimizer {
 public:
  using FlatOptimizer::FlatOptimizer;

  void set_step(Stream& stream, double learning_rate, std::int64_t step, std::int64_t epoch) override {
    step_.beta1 = options_.beta1;
    step_.beta2 = options_.beta2;
    step_.epsilon = options_.epsilon;
    step_.step = step;
    rates_.clear();
    std::vector<float> numbers;
    for (const UpdateRule& rule : rules_) {
      step_.learning_rate = rates_.emplace_back(rule.rate(learning_rate, epoch));
      step_.weight_decay = rule.weight_decay;
      std::ranges::copy(std::bit_cast<std::array<float, kMostValues>>(factors_of(step_)), std::back_inserter(numbers));
    }
    set_values(stream, std::move(numbers));
  }

  void apply(Stream& stream, const ParameterArena& arena) override {
    backend_.adamw_steps(stream, steps_of(arena, clip_factor(stream, arena)));
  }

  void update(Stream& stream, const ParameterArena& arena, const UnfinishedUpdate& update) override {
    backend_.update(stream, update, steps_of(arena, {}));
  }

 private:
  std::vector<AdamWStep> steps_of(const ParameterArena& arena, const Tensor& clip) const {
    std::vector<AdamWStep> steps;
    for (const OwnedPiece& run : runs_) {
      const std::size_t rule = rule_of_run(run);
      const auto first = kMostValues * static_cast<std::int64_t>(rule);
      AdamWStep& step = steps.emplace_back(step_);
      step.gradient_factor = clip;
      step.weights = elements_of(arena.weights(), run.elements);
      step.gradients = elements_of(arena.gradients(), run.elements);
      step.first_moment = state(0, run);
      step.second_moment = state(1, run);
      step.learning_rate = rates_[rule];
      step.weight_decay = rules_[rule].weight_decay;
      step.factors = values({first, first + kMostValues});
    }
    return steps;
  }

  AdamWStep step_{};
  std::vector<double> rates_;  // by rule
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
        factors_(backend_, std::ssize(adapted_), ElementType::f32) {
    for (const ParameterSlice& slice : adapted_) rule_of_adapted_.push_back(number_of(rule_of(options, slice)));
  }

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
      const std::size_t rule = rule_of_run(run);
      if (!rules_[rule].is_adapted) steps.push_back(step_of(arena, run, rule, clip));
    }
    for (const OwnedPiece& piece : pieces_) {
      const auto tensor = static_cast<std::int64_t>(piece.range);
      SgdStep& step = steps.emplace_back(step_of(arena, piece, rule_of_adapted_[piece.range], clip));
      step.rate_factor = elements_of(factors_.values, {tensor, tensor + 1});
    }
    backend_.sgd_steps(stream, steps);
  }

 private:
  static std::vector<ParameterSlice> adapted_slices(const OptimizerOptions& options, const ParameterLayout& layout) {
    std::vector<ParameterSlice> adapted = updated_slices(layout);
    std::erase_if(adapted, [&](const ParameterSlice& slice) { return !rule_of(options, slice).is_adapted; });
    return adapted;
  }

  std::vector<ParameterSlice> adapted_;
  std::vector<std::size_t> rule_of_adapted_;
  std::vector<OwnedPiece> pieces_;  // of the adapted slices
  SliceSquares weight_squares_;
  SliceSquares gradient_squares_;
  OwnedTensor factors_;
};

}  // namespace

std::size_t optimizer_slots(const OptimizerOptions& options) { return slot_names(options).size(); }

std::size_t first_trained_layer(const Network& network, const OptimizerOptions& options, std::int64_t epoch) {
  const auto is_trained = [&](const NetworkLayer& layer) {
    return std::ranges::any_of(
        layer.parameters, [&](int number) { return needs_backward(options, network.layout().slice(number), epoch); });
  };
  const auto& layers = network.layers();
  return static_cast<std::size_t>(std::ranges::find_if(layers, is_trained) - layers.begin());
}

void require_matches(const OptimizerOptions& options, const ParameterLayout& layout) {
  for (const auto* factors : {&options.lr_factors, &options.decay_factors}) {
    for (const ParameterFactor& each : *factors) {
      const auto is_meant = [&](const ParameterSlice& slice) { return matches(each.pattern, slice); };
      if (std::ranges::any_of(layout.trained(), is_meant)) continue;
      throw Error(ErrorSource::usage,
                  fmt::format("--{} {}={}: the network has no such parameter or layer; it has {}, for example",
                              factors == &options.lr_factors ? "lr-factors" : "decay-factors", each.pattern,
                              each.factor, layout.slice(0).name));
    }
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const OptimizerContext& context) {
  validate(options);
  require_matches(options, context.layout);
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
