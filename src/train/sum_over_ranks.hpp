#pragma once
// LossSums of all ranks, in host memory. Integers, so the order of ranks does not matter.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/communicator.hpp"

namespace tutti {

class SumOverRanks {
 public:
  // Borrowed.
  SumOverRanks(Backend& backend, Communicator& communicator);
  // Adds what `local` (i64 [LossSums::kFigures], on the device) holds on every rank. Waits. Collective.
  LossSums operator()(Stream& stream, const Tensor& local);

 private:
  Backend& backend_;
  Communicator& communicator_;
  Buffer exchanged_;
};

// Host copies of one rank's sums. They wait for the stream.
LossSums read_sums(Backend& backend, Stream& stream, const Tensor& sums);
void write_sums(Backend& backend, Stream& stream, const Tensor& sums, const LossSums& values);

}  // namespace tutti
