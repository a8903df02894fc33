#pragma once
// An ordered queue of work on one processor, and events in it. On the CPU, work runs at once in the calling thread, so
// that every event is reached when it is recorded; on a GPU, work is enqueued.

#include <functional>

namespace tutti {

// A point in a stream's work, set by Stream::record().
class Event {
 public:
  virtual ~Event() = default;
  // True when the work before the point is done, and before the event is first recorded. Throws the errors of that
  // work.
  virtual bool reached() { return true; }
  // The time between two reached events of one processor, both from Backend::make_timed_event().
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

  // Sets the event to the end of what is enqueued by now.
  virtual void record(Event&) {}
  // Work that is enqueued here from now on waits for the event as it was recorded last, on any stream of this
  // processor. Asynchronous.
  virtual void follow(const Event&) {}
  // Returns when the event is reached.
  virtual void await(Event&) {}
  // Calls `watch` repeatedly while synchronize() or await() waits; an exception that it throws ends the waiting.
  virtual void while_waiting(std::function<void()> watch) { static_cast<void>(watch); }
};

// Captured work that is launched again and again: the same operations on the same memory. On GPUs a CUDA graph.
class Graph {
 public:
  virtual ~Graph() = default;
  // Asynchronous.
  virtual void launch(Stream& stream) = 0;
};

}  // namespace tutti
