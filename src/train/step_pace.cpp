#include "step_pace.hpp"

#include <algorithm>

namespace tutti {

StepPace::StepPace(Backend& backend, Stream& stream, int steps_ahead) : stream_(stream) {
  for (int i = 0; i < std::max(0, steps_ahead) + 1; ++i) ends_.push_back(backend.make_event());
}

void StepPace::begin_step() {
  if (!clock_) clock_.emplace();
}

void StepPace::end_step() {
  stream_.record(*ends_[next_]);
  next_ = (next_ + 1) % ends_.size();
  stream_.await(*ends_[next_]);
}

double StepPace::settle() {
  if (!clock_) return 0;
  stream_.synchronize();
  const double seconds = clock_->seconds();
  clock_.reset();
  return seconds;
}

}  // namespace tutti
