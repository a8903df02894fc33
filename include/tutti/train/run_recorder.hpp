#pragma once
// Where a run's reports are kept while it goes on: a file of one form or another, written by rank 0. Of what is told, a
// form keeps what it has a place for. All of these calls throw save errors that name the path; after one, the next
// report may be kept all the same.

#include "tutti/train/run_observer.hpp"
#include "tutti/watch/time_account.hpp"

#include <cstdint>
#include <string>

namespace tutti {

class RunRecorder : public RunObserver {
 public:
  // A record that the program makes by itself: one whole JSON object on one line.
  virtual void on_line(const std::string& /*json*/) {}
  // Where the time since the last such report went.
  virtual void on_time(const EpochEnd&, const TimeReport&) {}
};

}  // namespace tutti
