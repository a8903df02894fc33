#pragma once
// What processors choose by measuring: chosen by one rank of each kind of processor, used by all its like, kept in
// checkpoints and, where asked for, in a file.

#include "tutti/backend/backend.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include "run_config.hpp"

#include <functional>
#include <string>

namespace tutti {

// What the checkpoint holds, or else the file of --plan-cache. To be called before any layer is made. Collective.
void adopt_known_choices(World& world, const RunConfig& config, const std::string& of_checkpoint, Backend& backend,
                         const Log& log);

// `build` makes every layer that the run will need: first on the first rank of each kind of processor, then on the
// others with what was chosen there. What was not in the file of --plan-cache is added to it. Collective.
void build_alike(World& world, const RunConfig& config, Backend& backend, const std::function<void()>& build);

}  // namespace tutti
