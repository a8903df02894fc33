#pragma once
// Gradients meet their peers: the block is cut into buckets, and each bucket's exchange starts as soon as its last
// gradient is final. The network and the optimizer do not know of buckets, nor this of layers.

#include "tutti/comm/communicator.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

class GradientSync {
 public:
  // Buckets are whole slices, at least bucket_bytes long but for the last. Borrowed: all but the layout.
  GradientSync(Communicator& communicator, const ParameterLayout& layout, const Tensor& gradients,
               std::size_t bucket_bytes);

  // A step that failed half-way leaves sums under way over memory that is about to go.
  ~GradientSync();
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Gradients [0, final_elements) of the block hold this rank's whole sum. Collective, in the same order.
  // Asynchronous.
  void ready(std::int64_t final_elements, Stream& stream);
  // Every gradient now holds the sum over all ranks, for work that follows on the stream. Collective.
  void finish(Stream& stream);

  // By bucket, the first element behind it: where ready() has something to do.
  const std::vector<std::int64_t>& bucket_ends() const noexcept { return ends_; }

 private:
  Communicator& communicator_;
  Tensor gradients_;
  std::vector<std::int64_t> ends_;
  std::size_t next_ = 0;
};

}  // namespace tutti
