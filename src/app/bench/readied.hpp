#pragma once
// One training, ready for its first step.

#include "tutti/base/log.hpp"
#include "tutti/train/trainer.hpp"

#include "../assemble.hpp"
#include "../plan_choices.hpp"
#include "../process_clock.hpp"

#include <optional>

namespace tutti {

struct Readied {
  Assembly assembly;
  double assembled_at = 0;  // seconds since the start of the process
  std::optional<Trainer> trainer;

  // `rank status` is borrowed, or null. Collective.
  Readied(World& world, const RunConfig& config, RankStatus* rank_status = nullptr)
      : assembly(assemble(world, config, nullptr, Log(world.rank(), world.host(), true))) {
    assembled_at = seconds_since_process_start();
    begin_anew(world, rank_status);
  }

  // A trainer in place of the one before it, by the assembly's options as they are now. Collective.
  void begin_anew(World& world, RankStatus* rank_status = nullptr) {
    build_alike(world, assembly.config, *assembly.backend, [&] {
      TrainerParts parts = assembly.parts();
      parts.rank_status = rank_status;
      trainer.emplace(parts, assembly.options, RunFacts{});
    });
  }
};

}  // namespace tutti
