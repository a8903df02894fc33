#pragma once
// When a run compares its replicas, and what it does when a value is no longer finite.

#include <cstdint>
#include <string>

namespace tutti {

enum class OnNotFinite {
  stop,
  skip,  // the step changes nothing
};

// Throws a usage error that names the option and its choices.
OnNotFinite parse_on_not_finite(const std::string& text);

struct Safeguards {
  std::int64_t verify_every_steps = 0;  // weights, statistics and optimizer state are compared; 0: never
  OnNotFinite on_not_finite = OnNotFinite::stop;
};

}  // namespace tutti
