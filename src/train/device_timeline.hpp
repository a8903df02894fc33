#pragma once
// Where a processor that works later than the host enqueues has come to: a timed mark in the stream where a step goes
// on to another phase, told to all who want to know once it is found reached. Of a rank's many parts only the first has
// marks. It waits for the processor only where nothing is under way, or nothing is to be: the host's own doings then go
// by the host's clock.

#include "tutti/backend/backend.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace tutti {

class DeviceTimeline : public PhaseQueue {
 public:
  // All borrowed. Does nothing where work is done at once.
  DeviceTimeline(Backend& backend, Stream& stream, RankStatus& rank_status);
  DeviceTimeline(const DeviceTimeline&) = delete;
  DeviceTimeline& operator=(const DeviceTimeline&) = delete;
  ~DeviceTimeline() override;

  bool take(const StepPhase& at) override;
  // Tells of the marks that have been reached by now.
  void look();
  // Returns when all has been reached and told; the host's clock counts until a step begins.
  void settle();

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    StepPhase at;
  };
  void begin();
  bool adds_nothing(const StepPhase& at) const;
  std::unique_ptr<Event> mark();

  Backend& backend_;
  Stream& stream_;
  RankStatus& rank_status_;
  bool runs_ = false;
  std::deque<Mark> marks_;  // not found reached yet
  StepPhase marked_{};      // the last of all
  std::unique_ptr<Event> reached_;
  std::int64_t reached_ns_ = 0;
  std::vector<std::unique_ptr<Event>> spare_;
};

}  // namespace tutti
