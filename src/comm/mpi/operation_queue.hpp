#pragma once
// Sums under way: a queue that starts operations in the order they came, keeps a few going at once, and
// lets a helper thread, other threads or the waiting owner drive them. It does not know what an operation
// sends.

#include "tutti/comm/world.hpp"

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace tutti::mpi {

// One operation of the same place in the queue on every rank.
class Operation {
 public:
  enum class State { waiting, moved, done };

  virtual ~Operation() = default;

  virtual void start() = 0;
  // Never waits. Not called again once done.
  virtual State advance() = 0;
};

using Operations = std::vector<std::unique_ptr<Operation>>;
// What operations work on, borrowed: up to two tensors' memory.
using OperationMemory = std::array<std::span<const std::byte>, 2>;

// At most kSumsInFlight operations are under way at once, none more than that many places after the oldest. Operations
// pushed together are of disjoint memory; those of different pushes on overlapping memory follow one another. An
// exception ends the queue, and finish() throws it whichever thread caught it. Destroying a queue with operations under
// way does not wait for them; it is for a process about to abort.
class OperationQueue {
 public:
  explicit OperationQueue(bool helper_thread);
  // Before the first push; borrowed. An operation is counted as begun when it is pushed.
  void count_in(CollectiveCounter& collectives) { collectives_ = &collectives; }

  // Without a helper thread, also starts what may start, so that the first messages leave at once.
  void push(const OperationMemory& memory, Operations operations);
  // Without waiting; false when nothing is left to move. From any thread.
  bool progress();
  // Returns when nothing is left.
  void finish();
  // Nothing moves any more; the helper thread has ended.
  void abandon() noexcept;

 private:
  struct Flight {
    std::unique_ptr<Operation> operation;
    OperationMemory memory;
    std::uint64_t push = 0;
    bool done = false;
  };

  // True when anything moved. `driving_` is held.
  bool drive() noexcept;
  bool admit();
  bool may_start_beside_others(const Flight& next) const;
  void land(std::size_t landed);
  bool has_failed();
  // Drives until nothing is left or a stop is asked for.
  void drive_all(const std::stop_token& stop);
  void serve(const std::stop_token& stop);

  CollectiveCounter own_collectives_;
  CollectiveCounter* collectives_ = &own_collectives_;

  std::mutex driving_;
  std::deque<Flight> in_flight_;  // guarded by driving_

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Flight> waiting_;  // guarded by mutex_, as the next three are
  std::uint64_t pushes_ = 0;
  std::size_t unfinished_ = 0;
  std::exception_ptr failure_;

  std::jthread helper_;  // last, so that it ends before what it uses
};

}  // namespace tutti::mpi
