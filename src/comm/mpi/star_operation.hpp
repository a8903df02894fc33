#pragma once
// Rank 0 and one other rank after the other, as a state machine that never waits: either rank 0 adds their values to
// its own, in the order of the ranks, or it sends its own to them.

#include "tutti/backend/tensor.hpp"

#include "message.hpp"
#include "operation_queue.hpp"

#include <cstddef>
#include <memory>

namespace tutti::mpi {

class StarOperation final : public Operation {
 public:
  // `tag` tells apart the operations that can be going at once.
  StarOperation(const RankPlace& place, const Tensor& values, StarDirection direction, int tag);

  void start() override;
  State advance() override;

 private:
  bool first() const { return place_.rank == 0; }
  bool receiving() const { return first() == (direction_ == StarDirection::sum_at_first); }
  void post();
  void take_in(const MPI_Status& status);

  RankPlace place_;
  Tensor values_;
  StarDirection direction_;
  int tag_;

  std::unique_ptr<std::byte[]> scratch_;
  int peer_;
  int last_peer_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace tutti::mpi
