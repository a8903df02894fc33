#pragma once
// While one of these lives, a communicator's sums are given up before a watch that has found a stall ends the process,
// so that no device is left spinning.

#include "tutti/comm/communicator.hpp"
#include "tutti/watch/stall_watch.hpp"

namespace tutti {

class AbandonAtEnd {
 public:
  // Borrowed; without a watch, does nothing.
  AbandonAtEnd(StallWatch* watch, Communicator& communicator) : watch_(watch) {
    if (watch_ != nullptr) watch_->before_end([&communicator] { communicator.abandon(); });
  }
  // Waits for the process's end where that has begun.
  ~AbandonAtEnd() {
    if (watch_ != nullptr) watch_->before_end({});
  }
  AbandonAtEnd(const AbandonAtEnd&) = delete;
  AbandonAtEnd& operator=(const AbandonAtEnd&) = delete;

 private:
  StallWatch* watch_;
};

}  // namespace tutti
