#pragma once
// Compares what must be equal on all ranks: options, versions, programs, data and processors.

#include "tutti/backend/backend.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "../findings.hpp"
#include "../run_config.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tutti {

// A value that must be equal on all ranks.
struct AgreedValue {
  std::string what;
  std::string value;
  std::string remedy;
};

// The options that affect the result.
std::vector<AgreedValue> agreed_options(RunConfig config);
// The libraries' versions; `description` is the world's.
std::vector<AgreedValue> agreed_versions(const std::string& description);

// CPUs and kinds of GPUs give different bits: a warning, or an error if the run promises bit-identical results
// (--exchange exact) and --allow-mixed-processors is not given. Warns of checkpoints of versions that used oneDNN, too.
// `resumed`: the checkpoint from which the run resumes, if any. Collective.
Findings check_processors(World& world, const RunConfig& config, const Backend& backend,
                          const std::optional<LoadedCheckpoint>& resumed);

// Reports every value in which a rank differs from rank 0. All ranks pass the same values. Collective.
Findings compare_across_ranks(World& world, const std::vector<AgreedValue>& values);

// Compares the files of the program and its libraries. They are read only if they are not the same files, and then by
// one rank per host. Collective.
Findings compare_programs(World& world);

// The cheap checks before every training, which open nothing. Collective.
Findings quick_checks(World& world, const RunConfig& config);

}  // namespace tutti
