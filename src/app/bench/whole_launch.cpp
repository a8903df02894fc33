#include "whole_launch.hpp"

#include "../assemble.hpp"
#include "../run_record.hpp"

namespace tutti {

WholeLaunch look_at_launch(World& world, RunConfig config) {
  config.parts = 0;  // as many threads as a training that chooses neither
  config.part_map = "even";
  config.exchange = "ring";
  config.shard_optimizer = false;
  const Assembly assembly = assemble(world, config, nullptr, Log(world.rank(), world.host(), true));
  return {.libraries = versions_text(assembly, world),
          .threads = static_cast<int>(assembly.config.threads),
          .cores_of_rank = fewest_cores_per_rank(world, assembly.cores),
          .on_gpus = world.agree(assembly.backend->memory_space() != MemorySpace::host),
          .exchange_has_core = assembly.exchange_has_core};
}

}  // namespace tutti
