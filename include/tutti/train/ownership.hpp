#pragma once
// Which rank updates which elements of the block, and the buckets in which they are exchanged. Pure arithmetic.

#include "tutti/base/shape.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/trainer_options.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct RankPosition {
  int rank = 0;
  int size = 1;
};

// The end of each bucket, in elements. A bucket is made of whole slices, at least bucket_bytes of f32; the last may be
// smaller. Slices in a row that have no gradient have buckets of their own if they are that large.
std::vector<std::int64_t> make_buckets(const ParameterLayout& layout, std::size_t bucket_bytes);

// A range of elements that this rank owns.
struct OwnedPiece {
  IndexRange elements;    // in the block
  IndexRange packed;      // in a block of only the elements that this rank owns, such as its optimizer state
  std::size_t range = 0;  // index of the requested range that contains it
};

// Which rank updates which elements of the block: every rank all of them, each rank a shard of each bucket, or rank 0
// everything. Pure arithmetic.
class Ownership {
 public:
  Ownership(Owners owners, const ParameterLayout& layout, std::vector<std::int64_t> bucket_ends, RankPosition position);

  Owners owners() const noexcept { return owners_; }
  const std::vector<std::int64_t>& bucket_ends() const noexcept { return ends_; }
  IndexRange bucket(std::size_t index) const { return {index == 0 ? 0 : ends_[index - 1], ends_[index]}; }
  // Whether the bucket has a slice with a gradient. The others are neither summed nor gathered.
  bool is_exchanged(std::size_t bucket) const { return is_exchanged_.at(bucket); }
  const std::vector<bool>& exchanged() const noexcept { return is_exchanged_; }
  // ReduceScatterGather::bounds of a bucket, from its first element. If each rank owns a shard, they are borders of the
  // blocks of kNormBlock elements, so that each owner can sum the squares of its blocks; otherwise shards are equal up
  // to a cache line.
  const std::vector<std::int64_t>& bounds(std::size_t bucket) const { return bounds_.at(bucket); }
  // The ranges that this rank updates, ascending: trained elements and statistics.
  const std::vector<IndexRange>& owned() const noexcept { return owned_; }
  // The pieces of these ascending ranges that this rank owns.
  std::vector<OwnedPiece> pieces_of(std::span<const IndexRange> ranges) const;

 private:
  Owners owners_;
  std::vector<std::int64_t> ends_;
  std::vector<bool> is_exchanged_;
  std::vector<std::vector<std::int64_t>> bounds_;
  std::vector<IndexRange> owned_;
};

// The elements of each slice, without padding.
std::vector<IndexRange> ranges_of(std::span<const ParameterSlice> slices);

}  // namespace tutti
