#pragma once
// The exchange of gradients: which rank updates which elements of the block, and buckets whose exchange starts as soon
// as their last gradient is final. The network and the optimizer do not know of buckets, nor the exchange of layers.

#include "tutti/comm/communicator.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/trainer_options.hpp"

#include "gradient_total.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct RankPlace {
  int rank = 0;
  int size = 1;
};

// Where each bucket ends, in elements: buckets are whole slices of at least bucket_bytes of f32, but for the last.
std::vector<std::int64_t> cut_buckets(const ParameterLayout& layout, std::size_t bucket_bytes);

// Elements that Backend::sum_squares adds in one block.
inline constexpr std::int64_t kNormBlock = 4096;

// Elements of the block that this rank owns, and their place among all that it owns, one owned range behind the other.
struct OwnedPiece {
  IndexRange elements;
  IndexRange place;
  std::size_t range = 0;  // which of the ranges that were asked for
};

// Which rank updates which elements of the block: all of them everywhere, a share of each bucket, or everything on rank
// 0. Pure arithmetic, alike on all ranks.
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
  // Of ascending ranges of the block, the pieces that this rank owns.
  std::vector<OwnedPiece> pieces_of(std::span<const IndexRange> ranges) const;

 private:
  Owners owners_;
  std::vector<std::int64_t> ends_;
  std::vector<std::vector<std::int64_t>> bounds_;
  std::vector<IndexRange> owned_;
};

// Of ascending ranges, what lies within the limits.
std::vector<IndexRange> within(const std::vector<IndexRange>& ranges, IndexRange limits);

// All-gathers what each rank owns of a block. Collective. Waits as Communicator::finish does.
void gather_owned(Communicator& communicator, const Ownership& ownership, const Tensor& block, Stream& stream);

class GradientExchange {
 public:
  // All borrowed. Without an exact sum (null), `gradients` hold this rank's total, f32.
  GradientExchange(Communicator& communicator, const Ownership& ownership, const Tensor& gradients, ExactSum* exact);
  // A step that failed half-way leaves sums under way over memory that is about to go.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Whether ready() would start the exchange of a bucket.
  bool is_due(std::int64_t final_elements) const;
  // Gradients [0, final_elements) of the rank's total are final. Collective, in the same order. Asynchronous.
  void ready(std::int64_t final_elements, Stream& stream);
  // What this rank owns of the gradients now holds the sum over all ranks, for work that follows on the stream.
  // Collective.
  void finish(Stream& stream);

 private:
  void start(std::size_t bucket, Stream& stream);

  Communicator& communicator_;
  const Ownership& ownership_;
  Tensor gradients_;
  ExactSum* exact_;
  std::size_t next_ = 0;
};

}  // namespace tutti
