#include "phase_timeline.hpp"

#include <cmath>
#include <utility>

namespace tutti {

PhaseTimeline::PhaseTimeline(Backend& backend, Stream& stream, RankStatus& status)
    : backend_(backend), stream_(stream), status_(status) {
  if (auto event = backend.make_timed_event()) {
    spare_.push_back(std::move(event));
    status_.set_phase_queue(this);
  }
}

PhaseTimeline::~PhaseTimeline() {
  if (!spare_.empty() || reached_) status_.set_phase_queue(nullptr);
}

bool PhaseTimeline::enqueue(const StepPhase& at) {
  backend_.begin_range(name_of(at.phase).data());
  if (!runs_) {
    if (at.phase == Phase::data) begin();
    marked_ = at;
    return false;
  }
  if (!is_redundant(at)) {
    marks_.push_back({mark(), at});
    marked_ = at;
    poll();
  }
  return true;
}

// An idle device reaches a mark immediately.
void PhaseTimeline::begin() {
  stream_.synchronize();
  if (reached_) spare_.push_back(std::move(reached_));
  reached_ = mark();
  reached_ns_ = now_ns();
  runs_ = true;
}

// The exchange's work is on other streams, or is waited for.
bool PhaseTimeline::is_redundant(const StepPhase& at) const {
  if (at.phase == Phase::exchange) return true;
  if (at.step != marked_.step) return false;
  return at.phase == marked_.phase || (at.phase == Phase::forward && marked_.phase == Phase::backward);
}

std::unique_ptr<Event> PhaseTimeline::mark() {
  if (spare_.empty()) spare_.push_back(backend_.make_timed_event());
  std::unique_ptr<Event> event = std::move(spare_.back());
  spare_.pop_back();
  stream_.record(*event);
  return event;
}

void PhaseTimeline::poll() {
  while (!marks_.empty() && marks_.front().event->reached()) {
    Mark next = std::move(marks_.front());
    marks_.pop_front();
    reached_ns_ += std::llround(next.event->seconds_since(*reached_) * 1e9);
    spare_.push_back(std::exchange(reached_, std::move(next.event)));
    status_.reach(next.at, reached_ns_);
  }
}

void PhaseTimeline::synchronize() {
  if (!runs_) return;
  stream_.synchronize();
  poll();
  runs_ = false;
}

}  // namespace tutti
