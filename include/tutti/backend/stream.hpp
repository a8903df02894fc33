#pragma once
// An ordered queue of work on one processor. On the CPU work runs at once in the calling thread; on a GPU it is
// enqueued.

namespace tutti {

class Stream {
 public:
  virtual ~Stream() = default;
  // Returns when all work enqueued so far is done.
  virtual void synchronize() = 0;
};

}  // namespace tutti
