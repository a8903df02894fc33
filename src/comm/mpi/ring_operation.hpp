#pragma once
// One ring all-reduce in place, as a state machine that never waits. In 2 * (ranks - 1) steps every rank
// sends a chunk to the next rank and receives one from the one before it: first partial sums go around, then
// whole ones. A chunk is summed in the order of the ranks, starting at the rank of the chunk's number, and
// copied from there: the bits depend on the position in the operation, its length and the number of ranks,
// and on nothing else.

#include "tutti/backend/tensor.hpp"

#include "operation_queue.hpp"

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::mpi {

struct RingPlace {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
};

class RingOperation final : public Operation {
 public:
  // `values` are f32 or i64; `tag` tells apart the operations that can be going at once.
  RingOperation(const RingPlace& place, const Tensor& values, int tag, std::atomic<std::uint64_t>& bytes_sent);

  void start() override;
  State advance() override;

 private:
  struct Chunk {
    std::byte* data;
    std::size_t bytes;
  };

  Chunk chunk(int number) const;
  Chunk outgoing() const;
  Chunk incoming() const;
  bool adding() const { return step_ < place_.size - 1; }
  void post();
  bool step_is_over();
  void take_in(const MPI_Status& status);

  RingPlace place_;
  Tensor values_;
  int tag_;
  std::atomic<std::uint64_t>& bytes_sent_;

  std::unique_ptr<std::byte[]> scratch_;
  int step_ = 0;
  bool received_ = false;
  MPI_Request sending_ = MPI_REQUEST_NULL;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
};

}  // namespace tutti::mpi
