#pragma once
// One training, ready for its first step.

#include "tutti/base/log.hpp"
#include "tutti/train/trainer.hpp"

#include "../assemble.hpp"
#include "../plan_choices.hpp"

#include <optional>

namespace tutti {

struct Readied {
  Assembly assembly;
  std::optional<Trainer> trainer;

  // `whereabouts` is borrowed, or null. Collective.
  Readied(World& world, const RunConfig& config, Whereabouts* whereabouts = nullptr)
      : assembly(assemble(world, config, nullptr, Log(world.rank(), world.host(), true))) {
    build_alike(world, assembly.config, *assembly.backend, [&] {
      TrainerParts parts = assembly.parts();
      parts.whereabouts = whereabouts;
      trainer.emplace(parts, assembly.options, RunFacts{});
    });
  }
};

}  // namespace tutti
