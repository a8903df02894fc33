#pragma once
// Which rank updates which elements of the block: all of them everywhere, a share of each bucket, or everything on rank
// 0. Arithmetic alike on all ranks, and how what one rank has reaches the others.

#include "tutti/comm/communicator.hpp"
#include "tutti/data/part_plan.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/exchange.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct RankPlace {
  int rank = 0;
  int size = 1;
};

// Bucket by bucket, the first element behind it: whole slices, at least bucket_bytes of f32 but for the last.
std::vector<std::int64_t> cut_buckets(const ParameterLayout& layout, std::size_t bucket_bytes);

// As Backend::sum_squares adds.
inline constexpr std::int64_t kNormBlock = 4096;

// Elements of the block that this rank owns, and where they are among all it owns, one owned range behind the other.
struct OwnedPiece {
  IndexRange elements;
  IndexRange place;
  std::size_t range = 0;  // which of the ranges that were asked for
};

class Ownership {
 public:
  Ownership(Owners owners, const ParameterLayout& layout, std::vector<std::int64_t> bucket_ends, RankPlace place);

  Owners owners() const noexcept { return owners_; }
  const std::vector<std::int64_t>& bucket_ends() const noexcept { return ends_; }
  IndexRange bucket(std::size_t number) const { return {number == 0 ? 0 : ends_[number - 1], ends_[number]}; }
  // ShardedSum::bounds of a bucket, counted from its first element. With shards, they lie where blocks of 4,096
  // elements of a slice begin, so that norms can be added up by those who own the blocks; else they are equal but for
  // cache lines.
  const std::vector<std::int64_t>& bounds(std::size_t bucket) const { return bounds_.at(bucket); }
  // What this rank updates, ascending: of the block, trained elements and statistics.
  const std::vector<IndexRange>& owned() const noexcept { return owned_; }
  // What it owns of ascending ranges of the block.
  std::vector<OwnedPiece> pieces_of(std::span<const IndexRange> ranges) const;

 private:
  Owners owners_;
  std::vector<std::int64_t> ends_;
  std::vector<std::vector<std::int64_t>> bounds_;
  std::vector<IndexRange> owned_;
};

// The part of ascending ranges that lies in another range.
std::vector<IndexRange> within(const std::vector<IndexRange>& ranges, IndexRange limits);

// What each rank owns of a block goes to all. Collective. Waits as Communicator::finish does.
void gather_owned(Communicator& communicator, const Ownership& ownership, const Tensor& block, Stream& stream);
// Of `rows`, as many elements for each rank, this rank's go to all. Collective. Asynchronous.
void pass_on_rows(Communicator& communicator, const Tensor& rows, Stream& stream);

}  // namespace tutti
