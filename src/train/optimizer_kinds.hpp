#pragma once
// The optimizers by kind, and what they share: which elements are decayed, norms of gradients, and their clipping. All
// of them borrow backend and communicator.

#include "tutti/comm/communicator.hpp"
#include "tutti/train/optimizer.hpp"

#include "elements.hpp"
#include "ownership.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti {

std::unique_ptr<Optimizer> make_sgd(const OptimizerOptions& options, const OptimizerParts& parts);
std::unique_ptr<Optimizer> make_adamw(const OptimizerOptions& options, const OptimizerParts& parts);
std::unique_ptr<Optimizer> make_lars(const OptimizerOptions& options, const OptimizerParts& parts);

// Trained elements that this rank owns and that are treated alike: of neighbouring slices, with their padding.
struct OwnedRun : OwnedPiece {
  bool spared = false;
};
// In order, covering all trained elements that it owns; one run for each owned range when no kind is spared.
std::vector<OwnedRun> owned_runs(const OptimizerParts& parts, bool spares_norms_and_biases);

// State for the trained elements that this rank owns.
struct StateBlock {
  explicit StateBlock(const OptimizerParts& parts);
  Tensor of(const OwnedPiece& piece) const { return elements_of(values, piece.place); }
  Buffer memory;
  Tensor values;
};

// Sums of squares of some slices of a block, kept in the processor's memory. Where shares are owned, each rank adds up
// the blocks that it owns, and block by block they go to all: the bits are those of whole slices.
class SliceSquares {
 public:
  SliceSquares(const OptimizerParts& parts, std::span<const ParameterSlice> slices);
  // f64 [slices], valid until the next call. Collective where shares are owned. Asynchronous.
  Tensor of(Stream& stream, const Tensor& block);

 private:
  struct Bucket {
    std::vector<IndexRange> blocks;  // of this rank
    Tensor sums;                     // theirs
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
