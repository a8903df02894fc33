#pragma once
// The exchange of gradients, in buckets that start as soon as their last gradient is ready. The network only reports
// when gradients are ready; the exchange knows nothing of layers.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/train/ownership.hpp"

#include "gradient_accumulator.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti {

// All-gathers what each rank owns of a block. Collective. Waits as Communicator::finish does.
void gather_owned(Communicator& communicator, const Ownership& ownership, const Tensor& block, Stream& stream);

// What is summed over the ranks. All borrowed.
struct ExchangedGradients {
  Tensor gradients;                   // f32, the whole block: this rank's total, unless `exact` holds it
  ExactAccumulator* exact = nullptr;  // null: gradients are summed in f32 or bf16
  std::int64_t in_bf16 = 0;           // the first elements of the block that are rounded, and summed in bf16
  Backend* backend = nullptr;         // converts them; null: there are none
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
  std::size_t bytes() const { return rounded_.memory.bytes(); }

 private:
  void start(std::size_t bucket, Stream& stream);
  void start_all_reduce(IndexRange range, Stream& stream);

  Communicator& communicator_;
  const Ownership& ownership_;
  ExchangedGradients exchanged_;
  OwnedTensor rounded_;  // the elements that are summed in bf16
  std::size_t next_ = 0;
};

}  // namespace tutti
