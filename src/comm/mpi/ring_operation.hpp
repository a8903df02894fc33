#pragma once
// One ring over chunks, as a state machine that never waits. In up to 2 * (ranks - 1) steps every rank sends a chunk to
// the next rank and receives one from the rank before: first partial sums go around, then what came of the whole ones.

#include "message.hpp"
#include "operation_queue.hpp"
#include "sum_work.hpp"

#include <cstddef>
#include <memory>

namespace tutti::mpi {

class RingOperation final : public Operation {
 public:
  // `tag` tells apart the operations that can be going at once.
  RingOperation(const RankPlace& place, SumWork work, int tag);

  void start() override;
  State advance() override;

 private:
  struct Chunk {
    std::byte* data;
    std::size_t bytes;
  };

  bool adding() const { return step_ < place_.size - 1; }
  Chunk chunk(int number) const;
  Chunk outgoing() const { return chunk(place_.rank - step_); }
  Chunk incoming() const { return chunk(place_.rank - step_ - 1); }
  void begin_step();
  void post();
  bool step_is_over();
  void take_in(const MPI_Status& status);

  RankPlace place_;
  SumWork work_;
  int tag_;

  std::unique_ptr<std::byte[]> scratch_;
  int step_;
  int end_;
  bool received_ = false;
  MPI_Request sending_ = MPI_REQUEST_NULL;
  MPI_Request receiving_ = MPI_REQUEST_NULL;
};

}  // namespace tutti::mpi
