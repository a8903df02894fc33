#pragma once
// Algorithms that backends choose by measuring. One rank of each kind of processor chooses for all ranks of that kind.
// The choices are stored in checkpoints and in the files of --plan-cache.

#include "tutti/backend/backend.hpp"
#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"

#include "run_config.hpp"

#include <functional>
#include <string>

namespace tutti {

// The folder "tutti" in the user's cache folder; empty if there is none. As the XDG specification says, a relative path
// is not used.
std::string own_cache_folder();

// Whether --plan-cache names a file: not `auto` or `off`.
bool names_plan_cache(const ProcessorOptions& options);

// Adopts the choices of the checkpoint, or else those of --plan-cache. To be called before any layer is made.
// Collective.
void adopt_known_choices(World& world, const ProcessorOptions& options, const std::string& of_checkpoint,
                         Backend& backend, const Log& log);

// `build` makes every layer that the run needs. It runs on the first rank of each kind of processor, and then with its
// choices on the others. What was measured is added to the files of --plan-cache, on rank 0. If the user's own cache
// cannot be written, this warns. Collective.
void build_with_shared_choices(World& world, const ProcessorOptions& options, Backend& backend, const Log& log,
                               const std::function<void()>& build);

}  // namespace tutti
