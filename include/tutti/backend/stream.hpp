#pragma once
// An ordered queue of work on one processor, and events in it. On a GPU, work is enqueued. On the CPU, it runs
// immediately in the calling thread, so that every event is reached when it is recorded.

#include <functional>

namespace tutti {

// A point in a stream's work, set by Stream::record().
class Event {
 public:
  virtual ~Event() = default;
  // Whether the work before the point is done; true if the event was never recorded. Throws the errors of that work.
  virtual bool reached() { return true; }
  // The time between two reached events of one processor, both made by Backend::make_timed_event().
  virtual double seconds_since(const Event& earlier) {
    static_cast<void>(earlier);
    return 0;
  }
};

class Stream {
 public:
  virtual ~Stream() = default;
  // Returns when all work enqueued so far is done.
  virtual void synchronize() = 0;

  // Records the event after all work enqueued so far.
  virtual void record(Event&) {}
  // Work enqueued here from now on waits for the event's last recording, on any stream of this processor. Asynchronous.
  virtual void wait_event(const Event&) {}
  // Returns when the event is reached.
  virtual void await(Event&) {}
  // Calls `callback` repeatedly while synchronize() or await() waits; an exception that it throws ends the wait.
  virtual void set_wait_callback(std::function<void()> callback) { static_cast<void>(callback); }
};

// Captured work that can be launched repeatedly: the same operations on the same memory. On GPUs, a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
  // Asynchronous.
  virtual void launch(Stream& stream) = 0;
};

}  // namespace tutti
