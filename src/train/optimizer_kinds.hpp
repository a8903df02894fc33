#pragma once
// The optimizers by kind, and what they share: which elements are decayed, norms of gradients, and their clipping.

#include "tutti/train/optimizer.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti {

// `backend` is borrowed by all of these.
std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout);
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout);
std::unique_ptr<Optimizer> make_lars(const OptimizerOptions& options, Backend& backend, const ParameterLayout& layout);

// Elements begin .. end - 1 of the trained ones: neighbouring slices that are treated alike, with their padding.
struct TrainedRun {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  bool spared = false;
};
// In order, covering all trained elements; one run when no kind is spared.
std::vector<TrainedRun> trained_runs(const ParameterLayout& layout, bool spares_norms_and_biases);

// A block of state for the trained elements.
struct StateBlock {
  StateBlock(Backend& backend, const ParameterLayout& layout);
  Buffer memory;
  Tensor values;
};

// Sums of squares of some slices of a block, kept in the processor's memory.
class SliceSquares {
 public:
  SliceSquares(Backend& backend, std::span<const ParameterSlice> slices);
  // f64 [slices], valid until the next call. Asynchronous.
  Tensor of(Stream& stream, const Tensor& block);

 private:
  Backend& backend_;
  std::vector<ParameterSlice> slices_;
  Buffer sums_;
};

// Shrinks all gradients alike when their common norm is above the limit.
class GradientClip {
 public:
  GradientClip(double greatest_norm, Backend& backend, const ParameterLayout& layout);
  // f32 [1] by which gradients are to be multiplied; empty without a limit. Asynchronous.
  Tensor factor(Stream& stream, const ParameterArena& arena);

 private:
  double greatest_norm_;
  Backend& backend_;
  SliceSquares squares_;
  Buffer factor_;
};

}  // namespace tutti
