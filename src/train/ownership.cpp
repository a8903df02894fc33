#include "tutti/train/ownership.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kCacheLineElements = 64 / sizeof(float);

// The last offset at or before `offset` at which a shard of the bucket may begin.
std::int64_t begin_of_norm_block(const ParameterLayout& layout, IndexRange bucket, std::int64_t offset) {
  const auto& slices = layout.slices();
  const auto next = std::ranges::upper_bound(slices, offset, {}, &ParameterSlice::offset);
  const std::int64_t slice = std::prev(next)->offset;
  return std::max(bucket.begin, slice + (offset - slice) / kNormBlock * kNormBlock);
}

std::vector<std::int64_t> shard_bounds(Owners owners, const ParameterLayout& layout, IndexRange bucket, int ranks) {
  std::vector<std::int64_t> bounds{0};
  for (int rank = 1; rank < ranks; ++rank) {
    if (owners == Owners::root) {
      bounds.push_back(bucket.size());
    } else if (owners == Owners::all) {
      // The last shard takes the rest: if all others are equal, NCCL needs only one call.
      bounds.push_back(bucket.size() / ranks / kCacheLineElements * kCacheLineElements * rank);
    } else {
      const std::int64_t even = bucket.size() * rank / ranks / kCacheLineElements * kCacheLineElements;
      bounds.push_back(begin_of_norm_block(layout, bucket, bucket.begin + even) - bucket.begin);
    }
  }
  bounds.push_back(bucket.size());
  return bounds;
}

void append(std::vector<IndexRange>& ranges, IndexRange range) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

}  // namespace

std::vector<std::int64_t> make_buckets(const ParameterLayout& layout, std::size_t bucket_bytes) {
  const auto is_large = [&](IndexRange range) {
    return static_cast<std::size_t>(range.size()) * sizeof(float) >= bucket_bytes;
  };
  const std::vector<std::int64_t> slice_ends = layout.slice_ends();
  std::vector<IndexRange> without_gradient;
  for (std::size_t i = 0; i < slice_ends.size(); ++i) {
    const ParameterSlice& slice = layout.slices()[i];
    if (!slice.has_gradient) append(without_gradient, {slice.offset, slice_ends[i]});
  }
  std::erase_if(without_gradient, [&](IndexRange range) { return !is_large(range); });
  std::vector<std::int64_t> ends;
  std::int64_t begin = 0;
  for (const std::int64_t end : slice_ends) {
    const auto is_at_end = [&](IndexRange range) { return range.begin == end || range.end == end; };
    const bool is_border = std::ranges::any_of(without_gradient, is_at_end);
    if (end == layout.block_elements() || is_large({begin, end}) || is_border) {
      ends.push_back(end);
      begin = end;
    }
  }
  return ends;
}

Ownership::Ownership(Owners owners, const ParameterLayout& layout, std::vector<std::int64_t> bucket_ends,
                     RankPosition position)
    : owners_(owners), ends_(std::move(bucket_ends)) {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const IndexRange whole = bucket(i);
    is_exchanged_.push_back(std::ranges::any_of(layout.slices(), [&](const ParameterSlice& slice) {
      return slice.has_gradient && slice.offset >= whole.begin && slice.offset < whole.end;
    }));
    const auto& bounds = bounds_.emplace_back(shard_bounds(owners, layout, whole, position.size));
    const auto rank = static_cast<std::size_t>(position.rank);
    append(owned_,
           owners == Owners::all ? whole : IndexRange{whole.begin + bounds[rank], whole.begin + bounds[rank + 1]});
  }
}

std::vector<OwnedPiece> Ownership::pieces_of(std::span<const IndexRange> ranges) const {
  std::vector<OwnedPiece> pieces;
  std::int64_t before = 0;
  for (const IndexRange& whole : owned_) {
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const IndexRange piece{std::max(whole.begin, ranges[i].begin), std::min(whole.end, ranges[i].end)};
      if (piece.begin >= piece.end) continue;
      const std::int64_t offset = before + piece.begin - whole.begin;
      pieces.push_back({piece, {offset, offset + piece.size()}, i});
    }
    before += whole.size();
  }
  return pieces;
}

std::vector<IndexRange> ranges_of(std::span<const ParameterSlice> slices) {
  std::vector<IndexRange> ranges;
  for (const ParameterSlice& slice : slices) ranges.push_back({slice.offset, slice.offset + slice.elements()});
  return ranges;
}

}  // namespace tutti
