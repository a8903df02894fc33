#pragma once
// An ordered queue of work on one processor, and points in it. On the CPU work runs at once in the calling thread, so
// that every point is reached when it is marked; on a GPU it is enqueued.

#include <functional>

namespace tutti {

// A point in a stream's work, marked by Stream::record().
class Event {
 public:
  virtual ~Event() = default;
  // True when the work before the point is done, and before a point is marked. Throws what the work met.
  virtual bool reached() { return true; }
  // Between two reached points of one processor, of Backend::make_timed_event().
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

  // Marks the end of what is enqueued by now.
  virtual void record(Event&) {}
  // What is enqueued here from now on waits for the point, as marked last, of any stream of this processor.
  // Asynchronous.
  virtual void follow(const Event&) {}
  // Returns when the point is reached.
  virtual void await(Event&) {}
  // To be called again and again while synchronize() or await() waits; what it throws ends the waiting.
  virtual void while_waiting(std::function<void()> watch) { static_cast<void>(watch); }
};

// Work that was enqueued once to be enqueued again and again alike: the same operations on the same memory.
class Recording {
 public:
  virtual ~Recording() = default;
  // Asynchronous.
  virtual void replay(Stream& stream) = 0;
};

}  // namespace tutti
