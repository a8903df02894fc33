#pragma once
// What a run does when its replicas differ, or when a value is no longer finite.

#include <cstdint>
#include <string>

namespace tutti {

enum class OnDivergence {
  stop,
  heal,  // all ranks go back to the last state that was proven equal, and play the steps again
};
enum class OnNotFinite {
  stop,
  skip,  // the step changes nothing
};

// Throw usage errors that name the option and its choices.
OnDivergence parse_on_divergence(const std::string& text);
OnNotFinite parse_on_not_finite(const std::string& text);

struct Safeguards {
  std::int64_t verify_every_steps = 0;  // weights, statistics and optimizer state are compared; 0: never
  OnDivergence on_divergence = OnDivergence::stop;
  OnNotFinite on_not_finite = OnNotFinite::stop;
};

}  // namespace tutti
