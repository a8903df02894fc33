#pragma once
// One combination of a sweep, trained by the ranks that it is for: from its first step to its last, or to what stood in
// its way.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "../run_config.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

struct SweepOutcome {
  std::optional<Error> trouble{};  // that all ranks had alike; none: it was trained to its end
  std::vector<EpochReport> epochs{};
  RunConfig config{};  // with what was left to the program filled in
  bool oversubscribed = false;
  std::int64_t train_images = 0;  // in the training set

  const EpochReport& last() const { return epochs.back(); }
  std::optional<LossSums> test() const;  // the last there was
  double seconds() const;                // of training alone
  double images_per_second() const;
};

// A rank computes on so many cores, whatever the others do.
struct TrainingPlace {
  int cores = 1;
  StallWatch* watch = nullptr;  // borrowed; null: nobody watches
};

// An error that the ranks share is part of the outcome; one that a rank met alone is thrown. Collective.
SweepOutcome train_case(World& working, const RunConfig& config, const TrainingPlace& place);

}  // namespace tutti
