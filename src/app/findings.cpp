#include "findings.hpp"

#include "tutti/base/process.hpp"

#include "output.hpp"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

namespace tutti {

void Findings::add(Finding finding) {
  const auto known = std::ranges::find_if(findings_, [&](const Finding& other) {
    return other.severity == finding.severity && other.text == finding.text;
  });
  if (known == findings_.end()) {
    const auto after =
        std::ranges::find_if(findings_, [&](const Finding& other) { return other.severity > finding.severity; });
    findings_.insert(after, std::move(finding));
    return;
  }
  std::vector<int> together;
  std::ranges::set_union(known->ranks, finding.ranks, std::back_inserter(together));
  known->ranks = std::move(together);
}

void Findings::add(const Findings& others) {
  for (const Finding& finding : others.findings_) add(finding);
}

std::size_t Findings::count(Severity severity) const {
  return static_cast<std::size_t>(std::ranges::count(findings_, severity, &Finding::severity));
}

Findings gather(World& world, const Findings& mine) {
  auto list = nlohmann::ordered_json::array();
  for (const Finding& finding : mine.all()) list.push_back({finding.severity, finding.source, finding.text});
  const auto all = all_gather_text(world, json_line(list));
  Findings findings;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    for (const auto& one : nlohmann::json::parse(all[rank])) {
      findings.add(
          {one[0].get<Severity>(), one[1].get<ErrorSource>(), one[2].get<std::string>(), {static_cast<int>(rank)}});
    }
  }
  return findings;
}

std::string line_of(const Finding& finding, std::span<const std::string> hosts) {
  const std::vector<int>& ranks = finding.ranks;
  if (ranks.empty() || hosts.size() == 1) return finding.text;
  const auto host_of = [&](int rank) { return hosts[static_cast<std::size_t>(rank)]; };
  const bool on_one = std::ranges::all_of(ranks, [&](int rank) { return host_of(rank) == host_of(ranks.front()); });
  const std::string who = ranks.size() == hosts.size() ? "all ranks" : ranks_text(ranks);
  return fmt::format("{}{}: {}", who, on_one && ranks.size() != hosts.size() ? " on " + host_of(ranks.front()) : "",
                     finding.text);
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::vector<std::string> ranges;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    ranges.push_back(first == last ? fmt::format("{}", ranks[first]) : fmt::format("{}-{}", ranks[first], ranks[last]));
    first = last + 1;
  }
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranges, ", "));
}

void log_or_throw(World& world, const Findings& findings, const Log& log) {
  if (findings.all().empty()) return;  // the same on all ranks
  const Hosts hosts = all_gather_text(world, world.host());
  for (const Finding& finding : findings.all()) {
    if (finding.severity == Severity::warning && world.rank() == 0) log.warn(line_of(finding, hosts));
  }
  const std::size_t errors = findings.count(Severity::error);
  if (errors == 0) return;
  const Finding& first = findings.all().front();
  const std::string more =
      errors == 1 ? "" : fmt::format(" ({} more: {} check lists them all)", errors - 1, program_call());
  throw Error(first.source, line_of(first, hosts) + more).on_all_ranks();
}

}  // namespace tutti
