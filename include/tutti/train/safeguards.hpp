#pragma once
// When a run compares its replicas, and what it does when a value is no longer finite.

#include "tutti/base/words.hpp"

#include <cstdint>

namespace tutti {

enum class OnNotFinite {
  stop,
  skip,  // the step changes nothing
};
constexpr std::array<std::string_view, 2> words_of(OnNotFinite) { return {"stop", "skip"}; }

struct Safeguards {
  std::int64_t verify_every_steps = 0;  // weights, statistics and optimizer state are compared; 0: never
  OnNotFinite on_not_finite = OnNotFinite::stop;
};

}  // namespace tutti
