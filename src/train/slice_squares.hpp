#pragma once
// The norms that optimizers need, of the weights or gradients of slices, as sums of squares.

#include "tutti/backend/backend.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/optimizer.hpp"

#include "rank_context.hpp"

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

}  // namespace tutti
