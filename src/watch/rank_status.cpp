#include "tutti/watch/rank_status.hpp"

#include <algorithm>
#include <chrono>

namespace tutti {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::starting:
      return "starting";
    case Phase::data:
      return "data";
    case Phase::forward:
      return "forward";
    case Phase::backward:
      return "backward";
    case Phase::exchange:
      return "exchange";
    case Phase::waiting:
      return "waiting";
    case Phase::update:
      return "update";
    case Phase::evaluation:
      return "evaluation";
    case Phase::checkpoint:
      return "checkpoint";
    case Phase::reports:
      return "reports";
    case Phase::ending:
      return "ending";
  }
  return "unknown";
}

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

RankStatus::RankStatus() : since_ns_(now_ns()) { publish(); }

void RankStatus::publish_in(PlaceSlot& slot) {
  slot_ = &slot;
  publish();
}

void RankStatus::move_to(const Place& place) {
  place_ = place;
  if (queue_ == nullptr || !queue_->take(place)) reach(place, now_ns());
}

void RankStatus::reach(const Place& place, std::int64_t at_ns) {
  const Stay ended{.place = reached_, .begin_ns = since_ns_, .end_ns = std::max(since_ns_, at_ns)};
  reached_ = place;
  since_ns_ = ended.end_ns;
  publish();
  for (PlaceListener* const listener : listeners_) listener->on_end(ended);
  for (PlaceListener* const listener : listeners_) listener->on_begin(place);
}

void RankStatus::publish() {
  slot_->step.store(reached_.step, std::memory_order_relaxed);
  slot_->phase.store(reached_.phase, std::memory_order_relaxed);
  slot_->signs.fetch_add(1, std::memory_order_release);
}

}  // namespace tutti
