#pragma once
// Whether stderr is somebody's terminal, to draw progress on.

#include "run_config.hpp"

namespace tutti {

// As --progress and --quiet have it.
bool draws_progress(const RunConfig& config);

}  // namespace tutti
