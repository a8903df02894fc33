#include "layer_clock.hpp"

#include <utility>

namespace tutti {

double ProfiledStep::left() const {
  double sum = data + loss + exchange + update;
  for (const auto& [forward, backward] : layers) sum += forward + backward;
  return step - sum;
}

LayerClock::LayerClock(Whereabouts& whereabouts) : whereabouts_(whereabouts), since_ns_(now_ns()) {
  whereabouts_.add(*this);
}

LayerClock::~LayerClock() { whereabouts_.remove(*this); }

double LayerClock::lap(std::int64_t at_ns) {
  const double seconds = static_cast<double>(at_ns - since_ns_) * 1e-9;
  since_ns_ = at_ns;
  return seconds;
}

void LayerClock::on_begin(const Place& place) {
  phase_ = place.phase;
  since_ns_ = now_ns();
}

void LayerClock::on_layer() {
  if (phase_ == Phase::forward) {
    if (passed_ == seen_.layers.size()) seen_.layers.emplace_back();
    seen_.layers[passed_++].forward += lap(now_ns());
  } else if (phase_ == Phase::backward) {
    seen_.layers.at(--passed_).backward += lap(now_ns());
  }
}

// After its last layer a forward pass is left with the loss.
void LayerClock::count(double seconds) {
  switch (phase_) {
    case Phase::data:
      seen_.data += seconds;
      break;
    case Phase::forward:
      seen_.loss += seconds;
      break;
    case Phase::exchange:
    case Phase::waiting:
      seen_.exchange += seconds;
      break;
    case Phase::update:
      seen_.update += seconds;
      break;
    default:
      break;
  }
}

void LayerClock::on_end(const Stay& stay) { count(lap(stay.end_ns)); }

ProfiledStep LayerClock::take() {
  count(lap(now_ns()));
  phase_ = Phase::reports;
  return std::exchange(seen_, {});
}

}  // namespace tutti
