#include "tutti/watch/rank_status.hpp"

#include <algorithm>
#include <chrono>

namespace tutti {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RankStatus::RankStatus() : since_ns_(now_ns()) { publish(); }

void RankStatus::publish_in(StatusSlot& slot) {
  slot_ = &slot;
  publish();
}

void RankStatus::move_to(const StepPhase& at) {
  current_ = at;
  if (queue_ == nullptr || !queue_->enqueue(at)) reach(at, now_ns());
}

void RankStatus::reach(const StepPhase& at, std::int64_t at_ns) {
  const PhaseSpan ended{.at = reached_, .begin_ns = since_ns_, .end_ns = std::max(since_ns_, at_ns)};
  reached_ = at;
  since_ns_ = ended.end_ns;
  publish();
  for (PhaseListener* const listener : listeners_) listener->on_end(ended);
  for (PhaseListener* const listener : listeners_) listener->on_begin(at);
}

void RankStatus::publish() {
  slot_->step.store(reached_.step, std::memory_order_relaxed);
  slot_->phase.store(reached_.phase, std::memory_order_relaxed);
  slot_->progress.fetch_add(1, std::memory_order_release);
}

}  // namespace tutti
