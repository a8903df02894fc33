#include "slice_squares.hpp"

#include "exchange.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace tutti {

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

}  // namespace tutti
