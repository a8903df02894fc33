#include "norms.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

SliceSquares::SliceSquares(const OptimizerContext& context, std::span<const ParameterSlice> slices)
    : backend_(context.backend),
      communicator_(context.communicator),
      sums_(backend_.allocate(slices.size() * sizeof(double))) {
  for (const ParameterSlice& slice : slices) slices_.push_back({slice.offset, slice.offset + slice.elements()});
  if (context.ownership.owners() == Owners::sharded) divide_into_blocks(context.ownership);
}

void SliceSquares::divide_into_blocks(const Ownership& ownership) {
  std::vector<IndexRange> blocks;
  std::vector<std::int64_t> ends;
  for (const IndexRange& slice : slices_) {
    for (std::int64_t begin = slice.begin; begin < slice.end; begin += kNormBlock) {
      blocks.push_back({begin, std::min(begin + kNormBlock, slice.end)});
    }
    ends.push_back(static_cast<std::int64_t>(blocks.size()));
  }
  block_sums_ = communicator_.allocate(blocks.size() * sizeof(double));
  block_ends_ = upload(backend_, std::move(ends));

  const auto sums = [this](std::int64_t begin, std::int64_t end) {
    return block_sums_.view(Shape{end - begin}, ElementType::f64, static_cast<std::size_t>(begin) * sizeof(double));
  };
  const auto rank = static_cast<std::size_t>(communicator_.rank());
  for (std::size_t i = 0; i < ownership.bucket_ends().size(); ++i) {
    std::vector<std::int64_t> bounds;  // in blocks
    for (const std::int64_t bound : ownership.bounds(i)) {
      const auto at = std::ranges::lower_bound(blocks, ownership.bucket(i).begin + bound, {}, &IndexRange::begin);
      bounds.push_back(at - blocks.begin());
    }
    const std::int64_t first = bounds.front();
    if (bounds.back() == first) continue;
    Bucket& bucket = buckets_.emplace_back();
    bucket.blocks.assign(blocks.begin() + bounds[rank], blocks.begin() + bounds[rank + 1]);
    bucket.sums = sums(bounds[rank], bounds[rank + 1]);
    bucket.all.results = sums(first, bounds.back());
    for (std::int64_t& bound : bounds) bound -= first;
    bucket.all.bounds = std::move(bounds);
  }
}

void SliceSquares::sum(Stream& stream, const Tensor& block, const std::vector<IndexRange>& ranges, const Tensor& sums) {
  tensors_.clear();
  for (const IndexRange& range : ranges) tensors_.push_back(elements_of(block, range));
  backend_.sum_squares(stream, tensors_, sums);
}

Tensor SliceSquares::compute(Stream& stream, const Tensor& block) {
  const Shape shape{static_cast<std::int64_t>(slices_.size())};
  const Tensor sums = sums_.view(shape, ElementType::f64);
  if (buckets_.empty()) {
    sum(stream, block, slices_, sums);
    return sums;
  }
  for (const Bucket& bucket : buckets_) {
    if (!bucket.blocks.empty()) sum(stream, block, bucket.blocks, bucket.sums);
    communicator_.reduce_scatter_gather(bucket.all, stream);
  }
  communicator_.finish(stream);
  const Shape blocks{static_cast<std::int64_t>(block_sums_.bytes() / sizeof(double))};
  backend_.sum_runs(stream, block_sums_.view(blocks, ElementType::f64), block_ends_.view(shape, ElementType::i64),
                    sums);
  return sums;
}

GradientClip::GradientClip(double max_norm, const OptimizerContext& context)
    : max_norm_(max_norm),
      backend_(context.backend),
      squares_(context, max_norm == 0 ? std::span<const ParameterSlice>{} : context.layout.trained()),
      factor_(backend_.allocate(sizeof(float))) {}

Tensor GradientClip::factor(Stream& stream, const ParameterArena& arena) {
  if (max_norm_ == 0) return {};
  const Tensor factor = factor_.view(Shape{1}, ElementType::f32);
  backend_.clip_factor(stream, squares_.compute(stream, arena.gradients()), max_norm_, factor);
  return factor;
}

}  // namespace tutti
