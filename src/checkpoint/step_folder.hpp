#pragma once
// What a folder of checkpoints holds, by names alone.

#include "step_names.hpp"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace tutti {

struct StepFolder {
  std::vector<StepName> files;         // but for those marked bad
  std::vector<std::string> temporary;  // names under which a file of a checkpoint is, or was, being written
  bool any_bad = false;

  // Those that have the manifest of the whole, ascending.
  std::set<std::int64_t> complete() const;
};

// Nothing in a folder that does not exist. Throws an io error when it cannot be listed.
StepFolder list_steps(const std::string& folder);

}  // namespace tutti
