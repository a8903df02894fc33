#include "brief.hpp"

#include "tutti/base/error.hpp"

#include "agreement.hpp"
#include "load.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace tutti {

Findings preflight_in_brief(World& world, const RunConfig& config) {
  std::vector<Claim> claims = way_claims(config);
  for (Claim& claim : program_claims(world.description())) claims.push_back(std::move(claim));
  Findings findings = compare(world, claims);
  const Hosts hosts = all_gather_text(world, world.host());
  findings.add(judge_clocks(hosts, read_clocks(world)));
  findings.attempt([&] { run_agreed(world, [&] { refuse_missing_interface(config.watch_interface); }); });

  const char* const setting = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  const HostLoad load{.host = world.host(), .ranks = world.local_size(), .cores = count_cores(world)};
  Findings mine = judge_waiting(load, world.description(), setting == nullptr ? "" : setting);
  mine.add(judge_limits(process_limits(), {.local_ranks = world.local_size()}));
  findings.add(gather(world, mine));
  return findings;
}

void refuse_or_tell(World& world, const Findings& findings, const Log& log) {
  const Hosts hosts = all_gather_text(world, world.host());
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::warning) log.note("warning: " + line_of(finding, hosts));
  }
  const std::size_t doomed = findings.count(Severity::doomed);
  if (doomed == 0) return;
  const Finding& first = findings.all().front();
  const std::string more = doomed == 1 ? "" : fmt::format(" ({} more: trainer check tells them all)", doomed - 1);
  throw Error(first.source, line_of(first, hosts) + more).on_all_ranks();
}

}  // namespace tutti
