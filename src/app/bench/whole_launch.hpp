#pragma once
// What is as it is however many of a launch's ranks are put to work, seen with all of them at work.

#include "tutti/comm/world.hpp"

#include "../run_config.hpp"

#include <string>

namespace tutti {

struct WholeLaunch {
  std::string libraries;
  int threads = 1;        // of each part, for a run that chooses neither threads nor parts
  int cores_of_rank = 1;  // that each rank of the most crowded host can have
  bool on_gpus = false;   // all ranks
  bool exchange_has_core = false;
};

// With data and network of `config`, whatever its parts and exchange. Throws alike on all ranks what is wrong.
// Collective.
WholeLaunch look_at_launch(World& world, RunConfig config);

}  // namespace tutti
