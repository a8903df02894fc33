#include "operation_queue.hpp"

#include "tutti/base/error.hpp"

#include "../backoff.hpp"

#include <algorithm>
#include <utility>

namespace tutti::mpi {

OperationQueue::OperationQueue(bool helper_thread, CollectiveCounter& collectives) : collectives_(collectives) {
  if (!helper_thread) return;
  helper_ = std::jthread([this](const std::stop_token& stop) {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return unfinished_ > 0 && !failure_; })) return;
      }
      advance_until_idle(stop);
    }
  });
}

void OperationQueue::push(const OperationMemory& memory, Operations operations) {
  {
    const std::lock_guard lock(mutex_);
    ++pushes_;
    unfinished_ += operations.size();
    collectives_.begun.fetch_add(operations.size(), std::memory_order_relaxed);
    for (auto& operation : operations) {
      waiting_.push_back({.operation = std::move(operation), .memory = memory, .push = pushes_});
    }
  }
  if (helper_.joinable()) {
    changed_.notify_all();
  } else {
    progress();
  }
}

bool OperationQueue::progress() {
  if (const std::unique_lock alone(advancing_, std::try_to_lock); alone) advance_all();
  const std::lock_guard lock(mutex_);
  return unfinished_ > 0 && !failure_;
}

void OperationQueue::finish() {
  if (!helper_.joinable()) advance_until_idle({});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return unfinished_ == 0 || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void OperationQueue::abort() noexcept {
  helper_.request_stop();
  if (helper_.joinable()) helper_.join();
  const std::lock_guard lock(mutex_);
  failure_ = std::make_exception_ptr(Error(ErrorSource::internal, "the communicator was aborted"));
}

bool OperationQueue::advance_all() noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (failure_) return false;
    }
    bool progressed = start_pending();
    for (QueuedOperation& active : in_flight_) {
      if (active.done) continue;
      const Operation::State state = active.operation->advance();
      active.done = state == Operation::State::done;
      progressed |= state != Operation::State::waiting;
    }
    std::size_t retired = 0;
    for (; !in_flight_.empty() && in_flight_.front().done; ++retired) in_flight_.pop_front();
    if (retired == 0) return progressed;
    const std::lock_guard lock(mutex_);
    unfinished_ -= retired;
    collectives_.done.fetch_add(retired, std::memory_order_relaxed);
    if (unfinished_ == 0) changed_.notify_all();
    return progressed;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
    return false;
  }
}

bool OperationQueue::start_pending() {
  bool progressed = false;
  while (in_flight_.size() < kMaxOperationsInFlight) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() || !may_start(waiting_.front())) return progressed;
      in_flight_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    in_flight_.back().operation->start();
    progressed = true;
  }
  return progressed;
}

bool OperationQueue::may_start(const QueuedOperation& next) const {
  return std::ranges::none_of(in_flight_, [&](const QueuedOperation& active) {
    return !active.done && active.push != next.push && overlap(active.memory, next.memory);
  });
}

void OperationQueue::advance_until_idle(const std::stop_token& stop) {
  Backoff backoff(kMaxTransferSleep);
  while (!stop.stop_requested()) {
    {
      const std::lock_guard lock(mutex_);
      if (unfinished_ == 0 || failure_) return;
    }
    bool progressed = false;
    {
      const std::lock_guard alone(advancing_);
      progressed = advance_all();
    }
    if (progressed) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
}

}  // namespace tutti::mpi
