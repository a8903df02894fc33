#include "tutti/train/optimizer.hpp"

#include "tutti/base/error.hpp"

#include "optimizer_kinds.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tutti {

std::vector<OwnedRun> owned_runs(const OptimizerParts& parts, bool spares_norms_and_biases) {
  std::vector<IndexRange> ranges;
  std::vector<bool> spared;
  for (const ParameterSlice& slice : parts.layout.trained()) {
    const bool is_spared = spares_norms_and_biases && slice.kind != ParameterKind::weight;
    if (!ranges.empty()) ranges.back().end = slice.offset;
    if (!ranges.empty() && spared.back() == is_spared) continue;
    ranges.push_back({slice.offset, 0});
    spared.push_back(is_spared);
  }
  if (!ranges.empty()) ranges.back().end = parts.layout.trained_elements();
  std::vector<OwnedRun> runs;
  for (const OwnedPiece& piece : parts.ownership.pieces_of(ranges)) runs.push_back({piece, spared[piece.range]});
  return runs;
}

StateBlock::StateBlock(const OptimizerParts& parts) {
  const IndexRange trained{0, parts.layout.trained_elements()};
  std::int64_t elements = 0;
  for (const OwnedPiece& piece : parts.ownership.pieces_of({&trained, 1})) elements = piece.place.end;
  memory = parts.backend.allocate(static_cast<std::size_t>(elements) * sizeof(float));
  values = memory.view(Shape{elements}, ElementType::f32);
}

GradientClip::GradientClip(double greatest_norm, const OptimizerParts& parts)
    : greatest_norm_(greatest_norm),
      backend_(parts.backend),
      squares_(parts, greatest_norm == 0 ? std::span<const ParameterSlice>{} : parts.layout.trained()),
      factor_(backend_.allocate(sizeof(float))) {}

Tensor GradientClip::factor(Stream& stream, const ParameterArena& arena) {
  if (greatest_norm_ == 0) return {};
  const Tensor factor = factor_.view(Shape{1}, ElementType::f32);
  backend_.clip_factor(stream, squares_.of(stream, arena.gradients()), greatest_norm_, factor);
  return factor;
}

void require_sensible(const OptimizerOptions& options) {
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
    throw Error(ErrorSource::usage, "--nesterov wants --momentum above 0");
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, const OptimizerParts& parts) {
  require_sensible(options);
  const auto make = options.kind == OptimizerKind::adamw  ? make_adamw
                    : options.kind == OptimizerKind::lars ? make_lars
                                                          : make_sgd;
  // Where rank 0 owns everything, the others have nothing to update and no norms to add up.
  const bool has_nothing = parts.ownership.owners() == Owners::first && parts.communicator.rank() != 0;
  const ParameterLayout nothing;
  return make(options, {parts.backend, parts.communicator, has_nothing ? nothing : parts.layout, parts.ownership});
}

}  // namespace tutti
