#pragma once
// From a user's options to the trainer's.

#include "tutti/nn/network_spec.hpp"
#include "tutti/train/trainer.hpp"

#include "run_config.hpp"

#include <set>
#include <string>

namespace tutti {

// Throws a usage error for options that contradict each other, and for what the trainer refuses of them.
void refuse_contradictions(const RunConfig& config);

// Fills in parts, threads and exchange for a run on so many ranks. Throws usage errors for what does not go together.
void settle_parts(RunConfig& config, int ranks, int fair_threads);

// Of a configuration in which nothing is left open.
TrainerOptions resolve_options(const RunConfig& config, const NetworkSpec& model);

// Throws a usage error for options that are for nothing without --out, when that is missing. Only training has it.
void refuse_without_out(const RunConfig& config);

// A list that a checkpoint holds fits one number of ranks, and only says who computes what: on another number, and
// where none is given anew, it becomes "even". Returns a note that says so, or nothing.
std::string drop_stored_part_map(RunConfig& config, const std::set<std::string>& given, int ranks);

}  // namespace tutti
