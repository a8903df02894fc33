#pragma once
// What every rank must have alike, and which ranks have it otherwise.

#include "tutti/comm/world.hpp"

#include "../run_config.hpp"
#include "finding.hpp"

#include <string>
#include <vector>

namespace tutti {

// One thing that all ranks must have alike.
struct Claim {
  std::string what;
  std::string value;
  std::string remedy;
};

// The options that decide on what is computed, and those that decide which collectives a rank comes to.
std::vector<Claim> option_claims(RunConfig config);
std::vector<Claim> way_claims(const RunConfig& config);
// The libraries' versions; `description` is the world's.
std::vector<Claim> version_claims(const std::string& description);

// The processor of this rank, and of the checkpoint that it resumes from; empty: none, or not known.
struct ProcessorKinds {
  std::string mine;
  std::string of_checkpoint{};
  std::string checkpoint{};  // its path
};
// Other instructions give other bits: warns, or dooms a run that promises the same bits (--exchange exact) and has not
// been allowed to break the promise. Collective.
Findings judge_processors(World& world, const RunConfig& config, const ProcessorKinds& kinds);

// Every claim in which some rank differs from rank 0; all ranks make the same claims. Collective.
Findings compare(World& world, const std::vector<Claim>& claims);

// The files of the program and its libraries, which are read only where they are not one and the same, and by one rank
// of those on a host that have the same ones. Collective.
Findings compare_programs(World& world);

// What can be found out before anything is opened and costs next to nothing: before every training. Collective.
Findings preflight_in_brief(World& world, const RunConfig& config);

}  // namespace tutti
