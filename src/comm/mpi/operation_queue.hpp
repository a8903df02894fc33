#pragma once
// A queue of asynchronous operations. It starts them in order, keeps a few in flight, and makes progress in a helper
// thread, in calls of progress() or in finish().

#include "tutti/comm/world.hpp"

#include "../arguments.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace tutti::mpi {

// An operation, which has the same position in the queue on every rank.
class Operation {
 public:
  enum class State { waiting, progressed, done };

  virtual ~Operation() = default;

  virtual void start() = 0;
  // Makes progress without waiting. Not called again once done.
  virtual State advance() = 0;
};

using Operations = std::vector<std::unique_ptr<Operation>>;
constexpr std::size_t kMaxOperationsInFlight = 4;

// At most kMaxOperationsInFlight consecutive operations are in flight. Operations pushed together must use disjoint
// memory; operations of different pushes on overlapping memory run one after the other. An exception in any thread
// stops the queue, and finish() rethrows it. The destructor does not wait for operations in flight: destroy a queue
// with pending operations only before aborting the process.
class OperationQueue {
 public:
  // Operations count as begun when they are pushed. The counter is borrowed.
  OperationQueue(bool helper_thread, CollectiveCounter& collectives);

  // Without a helper thread, this also calls progress(), so that the first messages are sent at once.
  void push(const OperationMemory& memory, Operations operations);
  // Makes progress without waiting; false if no operation is left. Thread-safe.
  bool progress();
  // Waits for all operations.
  void finish();
  // Stops making progress and ends the helper thread.
  void abort() noexcept;

 private:
  struct QueuedOperation {
    std::unique_ptr<Operation> operation;
    OperationMemory memory;
    std::uint64_t push = 0;
    bool done = false;
  };

  // True if any operation progressed. The caller holds advancing_.
  bool advance_all() noexcept;
  bool start_pending();
  bool may_start(const QueuedOperation& next) const;
  // Returns when no operation is left or a stop is requested.
  void advance_until_idle(const std::stop_token& stop);

  CollectiveCounter& collectives_;

  std::mutex advancing_;
  std::deque<QueuedOperation> in_flight_;  // guarded by advancing_

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<QueuedOperation> waiting_;  // this and the next three are guarded by mutex_
  std::uint64_t pushes_ = 0;
  std::size_t unfinished_ = 0;
  std::exception_ptr failure_;

  std::jthread helper_;  // last, so that it ends before the members that it uses
};

}  // namespace tutti::mpi
