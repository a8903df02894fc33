#pragma once
// Sums on their way: a queue that starts operations in the order they came, keeps a few going at once, and
// lets a helper thread, other threads or the waiting owner drive them. It does not know what an operation
// sends.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

namespace tutti::mpi {

// One operation of the same place in the queue on every rank. Borrows the memory it works on.
class Operation {
 public:
  enum class State { waiting, moved, done };

  explicit Operation(std::span<const std::byte> memory) : memory_(memory) {}
  virtual ~Operation() = default;

  virtual void start() = 0;
  // Never waits. Not called again once done.
  virtual State advance() = 0;

  bool overlaps(const Operation& other) const;

 private:
  std::span<const std::byte> memory_;
};

// At most kInFlight operations are going at once, all within kInFlight places of the oldest; operations on
// overlapping memory follow one another. An exception ends the queue and is thrown by finish(), whoever met
// it. Destroying a queue with operations in flight does not wait for them; it is for a process about to
// abort.
class OperationQueue {
 public:
  static constexpr std::size_t kInFlight = 4;

  explicit OperationQueue(bool helper_thread);

  // Without a helper thread, also starts what may start, so that the first messages leave at once.
  void push(std::vector<std::unique_ptr<Operation>> operations);
  // Without waiting; false when nothing is left to move. From any thread.
  bool progress();
  // Returns when nothing is left.
  void finish();
  // Nothing moves any more; the helper thread has ended.
  void abandon() noexcept;

 private:
  struct Flight {
    std::unique_ptr<Operation> operation;
    bool done = false;
  };

  // True when anything moved. `driving_` is held.
  bool drive() noexcept;
  bool admit();
  bool may_start_beside_others(const Operation& operation) const;
  void land(std::size_t landed);
  bool has_failed();
  // Drives until nothing is left or a stop is asked for.
  void drive_all(const std::stop_token& stop);
  void serve(const std::stop_token& stop);

  std::mutex driving_;
  std::deque<Flight> in_flight_;  // guarded by driving_

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::unique_ptr<Operation>> waiting_;  // guarded by mutex_, as the next two are
  std::size_t unfinished_ = 0;
  std::exception_ptr failure_;

  std::jthread helper_;  // last, so that it ends before what it uses
};

}  // namespace tutti::mpi
