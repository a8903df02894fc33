#include "step_throttle.hpp"

#include <algorithm>

namespace tutti {

StepThrottle::StepThrottle(Backend& backend, Stream& stream, int steps_ahead) : stream_(stream) {
  for (int i = 0; i < std::max(0, steps_ahead) + 1; ++i) ends_.push_back(backend.make_event());
}

void StepThrottle::begin_step() {
  if (!clock_) clock_.emplace();
}

void StepThrottle::end_step() {
  stream_.record(*ends_[next_]);
  next_ = (next_ + 1) % ends_.size();
  stream_.await(*ends_[next_]);
}

double StepThrottle::synchronize() {
  if (!clock_) return 0;
  stream_.synchronize();
  const double seconds = clock_->seconds();
  clock_.reset();
  return seconds;
}

}  // namespace tutti
