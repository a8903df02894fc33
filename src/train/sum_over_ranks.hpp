#pragma once
// LossSums of all ranks, in host memory. Integers, so the order of ranks does not matter.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>

namespace tutti {

class SumOverRanks {
 public:
  // Borrowed.
  SumOverRanks(Backend& backend, Communicator& communicator, RankStatus& rank_status);
  // Waits. Collective.
  LossSums operator()(Stream& stream, const LossSums& mine);

 private:
  Backend& backend_;
  Communicator& communicator_;
  RankStatus& rank_status_;
  Buffer exchanged_;
};

// Modulo 2^64. Waits. Collective.
std::uint64_t sum_over_ranks(Backend& backend, Communicator& communicator, Stream& stream, std::uint64_t mine);

// Host copies of sums (i64 [LossSums::kFigures]) in a processor's memory. They wait for the stream.
LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums);
void write_sums(Backend& backend, Stream& stream, const Tensor& sums, const LossSums& values);

}  // namespace tutti
