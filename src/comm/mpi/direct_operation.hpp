#pragma once
// All ranks to all others at once, as a state machine that never waits: every rank sends its values of each chunk to
// the rank where that ends, adds up what it receives in the ring's order, and sends what came of it to all. Two
// messages one after the other, however many the ranks: for sums so short that a ring's many steps take longer than
// their bytes.

#include "message.hpp"
#include "operation_queue.hpp"
#include "sum_work.hpp"

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti::mpi {

class DirectOperation final : public Operation {
 public:
  // `tag` tells apart the operations that can be going at once.
  DirectOperation(const RankPlace& place, SumWork work, int tag);

  void start() override;
  State advance() override;

 private:
  enum class Stage { adding, passing_on, over };

  void send_values();
  void add_up();
  void pass_on();
  void post_send(int rank, const Tensor& part);
  void post_receive(int rank, std::byte* to, std::size_t bytes);

  RankPlace place_;
  SumWork work_;
  int tag_;

  Stage stage_ = Stage::adding;
  std::unique_ptr<std::byte[]> received_;  // values of the chunk that ends here, by rank, from the next one on
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> awaited_bytes_;  // by request; of a sending: 0
};

}  // namespace tutti::mpi
