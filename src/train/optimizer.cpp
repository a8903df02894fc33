#include "tutti/train/optimizer.hpp"

#include "tutti/base/error.hpp"

#include "optimizer_kinds.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tutti {

std::vector<TrainedRun> trained_runs(const ParameterLayout& layout, bool spares_norms_and_biases) {
  std::vector<TrainedRun> runs;
  for (const ParameterSlice& slice : layout.trained()) {
    const bool spared = spares_norms_and_biases && slice.kind != ParameterKind::weight;
    if (runs.empty() || runs.back().spared != spared) runs.push_back({slice.offset, 0, spared});
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    runs[i].end = i + 1 < runs.size() ? runs[i + 1].begin : layout.trained_elements();
  }
  return runs;
}

StateBlock::StateBlock(Backend& backend, const ParameterLayout& layout)
    : memory(backend.allocate(static_cast<std::size_t>(layout.trained_elements()) * sizeof(float))),
      values(memory.view(Shape{layout.trained_elements()}, ElementType::f32)) {}

SliceSquares::SliceSquares(Backend& backend, std::span<const ParameterSlice> slices)
    : backend_(backend),
      slices_(slices.begin(), slices.end()),
      sums_(backend.allocate(slices.size() * sizeof(double))) {}

Tensor SliceSquares::of(Stream& stream, const Tensor& block) {
  std::vector<Tensor> tensors;
  for (const ParameterSlice& slice : slices_) tensors.push_back(slice_of(block, slice));
  const Tensor sums = sums_.view(Shape{static_cast<std::int64_t>(slices_.size())}, ElementType::f64);
  backend_.sum_squares(stream, tensors, sums);
  return sums;
}

GradientClip::GradientClip(double greatest_norm, Backend& backend, const ParameterLayout& layout)
    : greatest_norm_(greatest_norm),
      backend_(backend),
      squares_(backend, layout.trained()),
      factor_(backend.allocate(sizeof(float))) {}

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
  if (options.kind != "sgd" && options.kind != "adamw" && options.kind != "lars") {
    throw Error(ErrorSource::usage, fmt::format("--optimizer {}: must be one of sgd, adamw, lars", options.kind));
  }
  require(options.momentum >= 0 && options.momentum < 1, "momentum", options.momentum, "at least 0 and below 1");
  require(options.weight_decay >= 0 && std::isfinite(options.weight_decay), "weight-decay", options.weight_decay,
          "0 or more, and finite");
  require(options.clip_norm >= 0 && std::isfinite(options.clip_norm), "clip-norm", options.clip_norm,
          "0 (no limit) or more, and finite");
  if (options.nesterov && options.kind != "sgd") {
    throw Error(ErrorSource::usage,
                fmt::format("--nesterov belongs to sgd, but --optimizer is {}: leave one of them out", options.kind));
  }
  if (options.nesterov && options.momentum == 0) {
    throw Error(ErrorSource::usage, "--nesterov wants --momentum above 0");
  }
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, Backend& backend,
                                          const ParameterLayout& layout) {
  require_sensible(options);
  if (options.kind == "adamw") return make_adamw(options, backend, layout);
  if (options.kind == "lars") return make_lars(options, backend, layout);
  return make_sgd(options, backend, layout);
}

}  // namespace tutti
