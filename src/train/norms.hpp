#pragma once
// Norms of slices of a block, and the clipping of gradients by their global norm.

#include "tutti/train/optimizer.hpp"

#include "exchange.hpp"

#include <span>
#include <vector>

namespace tutti {

// The sums of squares of some slices of a block, in device memory. If ownership is sharded, each rank sums the blocks
// that it owns and the sums are all-gathered, which gives the same bits as whole slices.
class SliceSquares {
 public:
  SliceSquares(const OptimizerContext& context, std::span<const ParameterSlice> slices);
  // f64 [slices], valid until the next call. Collective if ownership is sharded. Asynchronous.
  Tensor compute(Stream& stream, const Tensor& block);

 private:
  struct Bucket {
    std::vector<IndexRange> blocks;  // of this rank
    Tensor sums;                     // of these blocks
    ReduceScatterGather all;
  };
  void divide_into_blocks(const Ownership& ownership);
  void sum(Stream& stream, const Tensor& block, const std::vector<IndexRange>& ranges, const Tensor& sums);

  Backend& backend_;
  Communicator& communicator_;
  std::vector<IndexRange> slices_;
  Buffer sums_;
  std::vector<Bucket> buckets_;  // empty if each rank owns whole slices
  Buffer block_sums_;
  Buffer block_ends_;
  std::vector<Tensor> tensors_;
};

// Scales all gradients down when their global norm exceeds the limit.
class GradientClip {
 public:
  GradientClip(double max_norm, const OptimizerContext& context);
  // The factor for the gradients, f32 [1]; empty without a limit. Collective and asynchronous as SliceSquares::compute.
  Tensor factor(Stream& stream, const ParameterArena& arena);

 private:
  double max_norm_;
  Backend& backend_;
  SliceSquares squares_;
  Buffer factor_;
};

}  // namespace tutti
