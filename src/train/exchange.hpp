#pragma once
// The exchange of gradients: which rank updates which elements of the block, and buckets whose exchange starts as soon
// as their last gradient is ready. The network only reports when the gradients of a bucket are ready; the exchange
// knows nothing of layers.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/nn/parameter_arena.hpp"
#include "tutti/train/trainer_options.hpp"

#include "gradient_accumulator.hpp"

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
// The intersections of ascending ranges with the limits.
std::vector<IndexRange> intersect(const std::vector<IndexRange>& ranges, IndexRange limits);

// All-gathers what each rank owns of a block. Collective. Waits as Communicator::finish does.
void gather_owned(Communicator& communicator, const Ownership& ownership, const Tensor& block, Stream& stream);

// What is summed over the ranks. All borrowed.
struct ExchangedGradients {
  Tensor gradients;                   // f32, the whole block: this rank's total, unless `exact` holds it
  ExactAccumulator* exact = nullptr;  // null: gradients are summed in f32 or bf16
  // bf16, or empty: the first elements of the block are rounded into it and summed there. `backend` converts them.
  Tensor rounded{};
  Backend* backend = nullptr;
};

class GradientExchange {
 public:
  // All borrowed.
  GradientExchange(Communicator& communicator, const Ownership& ownership, const ExchangedGradients& exchanged);
  // Aborts the collectives of a step that failed: their memory is about to be freed.
  ~GradientExchange();
  GradientExchange(const GradientExchange&) = delete;
  GradientExchange& operator=(const GradientExchange&) = delete;

  // Whether start_ready_buckets() would start the exchange of a bucket.
  bool is_due(std::int64_t ready_elements) const;
  // Gradients [0, ready_elements) of the rank's total are ready: starts the exchange of complete buckets. Collective.
  // Asynchronous.
  void start_ready_buckets(std::int64_t ready_elements, Stream& stream);
  // Afterwards the gradients that this rank owns are the sums over all ranks, for later work on the stream. Collective.
  void finish(Stream& stream);

 private:
  void start(std::size_t bucket, Stream& stream);
  void start_all_reduce(IndexRange range, Stream& stream);
  std::int64_t rounded_elements() const { return rounded_.data == nullptr ? 0 : rounded_.elements(); }

  Communicator& communicator_;
  const Ownership& ownership_;
  Tensor gradients_;
  ExactAccumulator* exact_;
  Tensor rounded_;
  Backend* backend_;
  std::size_t next_ = 0;
};

}  // namespace tutti
