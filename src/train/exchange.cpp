#include "exchange.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

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
      for (const IndexRange& piece : intersect({whole}, ranges[i])) {
        const std::int64_t offset = before + piece.begin - whole.begin;
        pieces.push_back({piece, {offset, offset + piece.size()}, i});
      }
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

std::vector<IndexRange> intersect(const std::vector<IndexRange>& ranges, IndexRange limits) {
  std::vector<IndexRange> inside;
  for (const IndexRange& range : ranges) {
    const IndexRange kept{std::max(range.begin, limits.begin), std::min(range.end, limits.end)};
    if (kept.begin < kept.end) inside.push_back(kept);
  }
  return inside;
}

void gather_owned(Communicator& communicator, const Ownership& ownership, const Tensor& block, Stream& stream) {
  if (ownership.owners() == Owners::all) return;
  for (std::size_t bucket = 0; bucket < ownership.bucket_ends().size(); ++bucket) {
    if (!ownership.is_exchanged(bucket)) continue;
    const Tensor values = elements_of(block, ownership.bucket(bucket));
    if (ownership.owners() == Owners::root) {
      communicator.broadcast(values, stream);
    } else {
      // Without values to reduce, this is an all_gather of shards of any sizes.
      communicator.reduce_scatter_gather(
          {.values = {}, .bounds = ownership.bounds(bucket), .transform_shard = {}, .results = values}, stream);
    }
  }
  communicator.finish(stream);
}

GradientExchange::GradientExchange(Communicator& communicator, const Ownership& ownership,
                                   const ExchangedGradients& exchanged)
    : communicator_(communicator),
      ownership_(ownership),
      gradients_(exchanged.gradients),
      exact_(exchanged.exact),
      rounded_(exchanged.rounded),
      backend_(exchanged.backend) {}

GradientExchange::~GradientExchange() {
  if (next_ != 0) communicator_.abort();
}

bool GradientExchange::is_due(std::int64_t ready_elements) const {
  const auto& ends = ownership_.bucket_ends();
  return next_ < ends.size() && ends[next_] <= ready_elements;
}

void GradientExchange::start_ready_buckets(std::int64_t ready_elements, Stream& stream) {
  for (; is_due(ready_elements); ++next_) start(next_, stream);
  communicator_.progress();
}

void GradientExchange::start(std::size_t bucket, Stream& stream) {
  if (!ownership_.is_exchanged(bucket)) return;
  const IndexRange range = ownership_.bucket(bucket);
  const Tensor gradients = elements_of(gradients_, range);
  const Owners owners = ownership_.owners();
  if (exact_ == nullptr && owners == Owners::all) return start_all_reduce(range, stream);
  if (exact_ == nullptr && owners == Owners::root) return communicator_.reduce_to_root(gradients, stream);
  ReduceScatterGather sum{
      .values = gradients, .bounds = ownership_.bounds(bucket), .transform_shard = {}, .results = {}};
  if (exact_ != nullptr) {
    sum.values = elements_of(exact_->sums(), range);
    sum.transform_shard = [exact = exact_, range](Stream& on, std::int64_t begin, std::int64_t end) {
      exact->convert(on, {range.begin + begin, range.begin + end});
    };
    if (owners == Owners::all) sum.results = gradients;
  }
  communicator_.reduce_scatter_gather(sum, stream);
}

void GradientExchange::start_all_reduce(IndexRange range, Stream& stream) {
  const IndexRange in_bf16{range.begin, std::clamp(rounded_elements(), range.begin, range.end)};
  const IndexRange in_f32{in_bf16.end, range.end};
  if (in_bf16.size() > 0) {
    const Tensor rounded = elements_of(rounded_, in_bf16);
    backend_->convert(stream, rounded, elements_of(gradients_, in_bf16));
    communicator_.all_reduce(rounded, stream);
  }
  if (in_f32.size() > 0) communicator_.all_reduce(elements_of(gradients_, in_f32), stream);
}

void GradientExchange::finish(Stream& stream) {
  const std::size_t buckets = ownership_.bucket_ends().size();
  if (next_ != buckets) {
    throw Error(ErrorSource::internal, fmt::format("only {} of {} buckets were started", next_, buckets));
  }
  communicator_.finish(stream);
  if (rounded_elements() > 0) {
    backend_->convert(stream, elements_of(gradients_, {0, rounded_elements()}), rounded_);
  }
  next_ = 0;
}

}  // namespace tutti
