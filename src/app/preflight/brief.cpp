#include "brief.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"

#include "agreement.hpp"
#include "load.hpp"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace tutti {

Findings preflight_in_brief(World& world, const RunConfig& config) {
  std::vector<Claim> claims = way_claims(config);
  for (Claim& claim : version_claims(world.description())) claims.push_back(std::move(claim));
  Findings findings = compare(world, claims);
  findings.add(compare_programs(world));
  if (world.local_size() < world.size()) {
    findings.add(judge_clocks(all_gather_text(world, world.host()), seconds_ahead(world)));
  }
  findings.add(gather(world, judge_limits(process_limits(), {.local_ranks = world.local_size()})));
  return findings;
}

void refuse_or_tell(World& world, const Findings& findings, const Log& log) {
  if (findings.all().empty()) return;  // on all ranks alike
  const Hosts hosts = all_gather_text(world, world.host());
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::warning && world.rank() == 0) log.warn(line_of(finding, hosts));
  }
  const std::size_t doomed = findings.count(Severity::doomed);
  if (doomed == 0) return;
  const Finding& first = findings.all().front();
  const std::string more =
      doomed == 1 ? "" : fmt::format(" ({} more: {} check tells them all)", doomed - 1, program_call());
  throw Error(first.source, line_of(first, hosts) + more).on_all_ranks();
}

}  // namespace tutti
