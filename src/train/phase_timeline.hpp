#pragma once
// The times at which a device that computes asynchronously reaches the phases of a step.

#include "tutti/backend/backend.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace tutti {

// Records a timed event in the stream where a step enters another phase, and reports the phase to the rank's status
// once the event has completed. Only the first of a rank's parts has events. Waits for the device only if no work is
// pending or may be; the host's clock is used then.
class PhaseTimeline : public PhaseQueue {
 public:
  // All borrowed. Does nothing on a synchronous device.
  PhaseTimeline(Backend& backend, Stream& stream, RankStatus& status);
  PhaseTimeline(const PhaseTimeline&) = delete;
  PhaseTimeline& operator=(const PhaseTimeline&) = delete;
  ~PhaseTimeline() override;

  bool enqueue(const StepPhase& at) override;
  // Reports the marks that have been reached.
  void poll();
  // Waits until all marks have been reached and reported. The host's clock is used until the next step begins.
  void synchronize();

 private:
  struct Mark {
    std::unique_ptr<Event> event;
    StepPhase at;
  };
  void begin();
  bool is_redundant(const StepPhase& at) const;
  std::unique_ptr<Event> mark();

  Backend& backend_;
  Stream& stream_;
  RankStatus& status_;
  bool runs_ = false;
  std::deque<Mark> marks_;  // pending
  StepPhase marked_{};      // the last mark
  std::unique_ptr<Event> reached_;
  std::int64_t reached_ns_ = 0;
  std::vector<std::unique_ptr<Event>> spare_;
};

}  // namespace tutti
