#pragma once
// Gradients meet their peers: the block is cut into buckets, and each bucket's exchange starts as soon as its last
// gradient is final. The network and the optimizer do not know of buckets, nor this of layers.

#include "tutti/comm/communicator.hpp"

#include "exact_sum.hpp"
#include "ownership.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

class GradientSync {
 public:
  // Borrowed. Without an exact sum (null), `gradients` hold this rank's total, f32.
  GradientSync(Communicator& communicator, const Ownership& ownership, const Tensor& gradients, ExactSum* exact);

  // A step that failed half-way leaves sums under way over memory that is about to go.
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Whether ready() would give any away.
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
