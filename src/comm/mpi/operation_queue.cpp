#include "operation_queue.hpp"

#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "../backoff.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace tutti::mpi {
namespace {

using Memory = std::span<const std::byte>;

bool overlap(const Memory& one, const Memory& other) {
  const std::less<const std::byte*> before;
  return before(one.data(), other.data() + other.size()) && before(other.data(), one.data() + one.size());
}

}  // namespace

OperationQueue::OperationQueue(bool helper_thread) {
  if (helper_thread) helper_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

void OperationQueue::push(const OperationMemory& memory, Operations operations) {
  {
    const std::lock_guard lock(mutex_);
    ++pushes_;
    unfinished_ += operations.size();
    collectives_->begun.fetch_add(operations.size(), std::memory_order_relaxed);
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
  if (const std::unique_lock alone(driving_, std::try_to_lock); alone) drive();
  const std::lock_guard lock(mutex_);
  return unfinished_ > 0 && !failure_;
}

void OperationQueue::finish() {
  if (!helper_.joinable()) drive_all({});
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return unfinished_ == 0 || failure_; });
  if (failure_) std::rethrow_exception(failure_);
}

void OperationQueue::abandon() noexcept {
  helper_.request_stop();
  if (helper_.joinable()) helper_.join();
  const std::lock_guard lock(mutex_);
  failure_ = std::make_exception_ptr(Error(ErrorSource::internal, "sums were abandoned"));
}

bool OperationQueue::drive() noexcept {
  try {
    if (has_failed()) return false;
    bool moved = admit();
    for (Flight& flight : in_flight_) {
      if (flight.done) continue;
      const Operation::State state = flight.operation->advance();
      flight.done = state == Operation::State::done;
      moved |= state != Operation::State::waiting;
    }
    std::size_t landed = 0;
    for (; !in_flight_.empty() && in_flight_.front().done; ++landed) in_flight_.pop_front();
    if (landed > 0) land(landed);
    return moved;
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
    return false;
  }
}

bool OperationQueue::admit() {
  bool moved = false;
  while (in_flight_.size() < kSumsInFlight) {
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty() || !may_start_beside_others(waiting_.front())) return moved;
      in_flight_.push_back(std::move(waiting_.front()));
      waiting_.pop_front();
    }
    in_flight_.back().operation->start();
    moved = true;
  }
  return moved;
}

bool OperationQueue::may_start_beside_others(const Flight& next) const {
  return std::ranges::none_of(in_flight_, [&](const Flight& flight) {
    if (flight.done || flight.push == next.push) return false;
    return std::ranges::any_of(flight.memory, [&](const Memory& taken) {
      return std::ranges::any_of(next.memory, [&](const Memory& wanted) { return overlap(taken, wanted); });
    });
  });
}

void OperationQueue::land(std::size_t landed) {
  const std::lock_guard lock(mutex_);
  unfinished_ -= landed;
  collectives_->done.fetch_add(landed, std::memory_order_relaxed);
  if (unfinished_ == 0) changed_.notify_all();
}

bool OperationQueue::has_failed() {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void OperationQueue::drive_all(const std::stop_token& stop) {
  Backoff backoff(kUntilMoved);
  while (!stop.stop_requested()) {
    {
      const std::lock_guard lock(mutex_);
      if (unfinished_ == 0 || failure_) return;
    }
    bool moved = false;
    {
      const std::lock_guard alone(driving_);
      moved = drive();
    }
    if (moved) {
      backoff.reset();
    } else {
      backoff.wait();
    }
  }
}

void OperationQueue::serve(const std::stop_token& stop) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return unfinished_ > 0 && !failure_; })) return;
    }
    drive_all(stop);
  }
}

}  // namespace tutti::mpi
