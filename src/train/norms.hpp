#pragma once
// Norms of slices of a block, and the clipping of gradients by their common norm.

#include "tutti/train/optimizer.hpp"

#include "exchange.hpp"

#include <span>
#include <vector>

namespace tutti {

// Sums of squares of some slices of a block, in the processor's memory. Where ranks own shares, each adds up the blocks
// that it owns and these sums are all-gathered: the bits are those of whole slices.
class SliceSquares {
 public:
  SliceSquares(const OptimizerParts& parts, std::span<const ParameterSlice> slices);
  // f64 [slices], valid until the next call. Collective where shares are owned. Asynchronous.
  Tensor of(Stream& stream, const Tensor& block);

 private:
  struct Bucket {
    std::vector<IndexRange> blocks;  // of this rank
    Tensor sums;                     // of these blocks
    ShardedSum all;
  };
  void cut_blocks(const Ownership& ownership);
  void sum(Stream& stream, const Tensor& block, const std::vector<IndexRange>& ranges, const Tensor& sums);

  Backend& backend_;
  Communicator& communicator_;
  std::vector<IndexRange> slices_;
  Buffer sums_;
  std::vector<Bucket> buckets_;  // none where whole slices are owned
  Buffer block_sums_;
  Buffer block_ends_;
  std::vector<Tensor> tensors_;
};

// Shrinks all gradients alike when their common norm is above the limit.
class GradientClip {
 public:
  GradientClip(double greatest_norm, const OptimizerParts& parts);
  // f32 [1] by which gradients are to be multiplied; empty without a limit. As SliceSquares::of.
  Tensor factor(Stream& stream, const ParameterArena& arena);

 private:
  double greatest_norm_;
  Backend& backend_;
  SliceSquares squares_;
  Buffer factor_;
};

}  // namespace tutti
