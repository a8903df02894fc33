#include "agreement.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/checksums.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "../option_table.hpp"
#include "../processors.hpp"
#include "load.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

namespace tutti {
namespace {

constexpr const char* kSame = "give all ranks the same";

std::string content_of(const std::string& path) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return "none";
  const auto bytes = read_whole(path);
  return fmt::format("{} bytes {:08x}", bytes.size(), crc32c(bytes));
}

// Equal on one host for one and the same file.
std::string place_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "none";
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// The last one is left out where some host has none: it has no GPU to use then, which is no matter of agreement.
std::vector<Claim> file_claims(std::string (*text_of)(const std::string& path), bool all_have_cuda) {
  const std::string remedy = "install one build where all hosts find it, and start that";
  std::vector<Claim> claims{{"program file", text_of("/proc/self/exe"), remedy},
                            {"libtutti.so", text_of(library_path()), remedy}};
  if (all_have_cuda) claims.push_back({"libtutti_cuda.so", text_of(cuda_library_path()), remedy});
  return claims;
}

std::string lines_of(const std::vector<Claim>& claims) {
  std::string lines;
  for (const Claim& claim : claims) lines += claim.value + "\n";
  return lines;
}

Findings differences(const std::vector<Claim>& claims, const std::vector<std::string>& lines_by_rank) {
  std::vector<std::istringstream> lines(lines_by_rank.begin(), lines_by_rank.end());
  Findings findings;
  for (const Claim& claim : claims) {
    std::map<std::string, std::vector<int>> ranks_by_value;
    std::string expected;
    for (std::size_t rank = 0; rank < lines.size(); ++rank) {
      std::string value;
      std::getline(lines[rank], value);
      if (rank == 0) expected = value;
      if (value != expected) ranks_by_value[value].push_back(static_cast<int>(rank));
    }
    for (const auto& [value, ranks] : ranks_by_value) {
      findings.doom(ErrorSource::input,
                    fmt::format("{} {} another {} than rank 0, {} against {}: {}", ranks_text(ranks),
                                ranks.size() == 1 ? "has" : "have", claim.what, value, expected, claim.remedy));
    }
  }
  return findings;
}

}  // namespace

std::vector<Claim> option_claims(RunConfig config) {
  std::vector<Claim> claims;
  for (const RunOption& option : run_options(config)) {
    if (option.use != OptionUse::fixed && option.use != OptionUse::changeable) continue;
    if (option.name == "device") continue;  // judged by choose_communicator()
    claims.push_back({"--" + option.name, value_text(option), kSame});
  }
  return claims;
}

std::vector<Claim> way_claims(const RunConfig& config) {
  return {{"--out", fmt::format("'{}'", config.out), kSame},
          {"--resume", config.resume ? "'true'" : "'false'", kSame},
          {"--dry-run", config.dry_run ? "'true'" : "'false'", kSame},
          {"--trace", fmt::format("'{}'", config.trace), kSame},
          {"--rehearse", fmt::format("'{}'", config.rehearse), kSame}};
}

std::vector<Claim> version_claims(const std::string& description) {
  const std::string remedy = "load the same modules on all hosts";
  return {{"version of Tutti", std::string(version()), remedy},
          {"MPI library", description, remedy},
          {"compute library", cpu_library_version(), remedy},
          {"HDF5", array_library_version(), remedy}};
}

Findings judge_processors(World& world, const RunConfig& config, const ProcessorKinds& kinds) {
  const bool promises_bits = config.exchange == Exchange::exact;
  const bool refuses = promises_bits && !config.allow_mixed_processors;
  const std::string remedy =
      std::string(
          "use one kind of processor, or set ONEDNN_MAX_CPU_ISA (AVX2, AVX512_CORE) in every rank's "
          "environment to what all CPUs have") +
      (refuses ? ", or accept it with --allow-mixed-processors" : "");
  Findings findings;
  const auto add = [&](const std::string& text) {
    findings.add({.severity = refuses ? Severity::doomed : Severity::warning,
                  .source = ErrorSource::input,
                  .text = text + ": " + remedy});
  };
  const auto by_rank = all_gather_text(world, kinds.mine);
  const std::string& first = by_rank.front();
  std::map<std::string, std::vector<int>> others;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != first) others[by_rank[rank]].push_back(static_cast<int>(rank));
  }
  for (const auto& [kind, ranks] : others) {
    add(fmt::format("{} with {}, and rank 0 with {}, so the bits depend on which rank computes which part",
                    ranks_text(ranks) + (ranks.size() == 1 ? " computes" : " compute"), kind, first));
  }
  if (!kinds.of_checkpoint.empty() && kinds.of_checkpoint != first) {
    add(fmt::format(
        "{} was computed with {}, and rank 0 has {}, so the run will not end with the bits of an unbroken one",
        kinds.checkpoint, kinds.of_checkpoint, first));
  }
  return findings;
}

Findings compare(World& world, const std::vector<Claim>& claims) {
  return differences(claims, all_gather_text(world, lines_of(claims)));
}

Findings compare_programs(World& world) {
  std::error_code absent;
  const bool all_have_cuda = world.agree(std::filesystem::exists(cuda_library_path(), absent));
  const std::vector<Claim> places = file_claims(place_of, all_have_cuda);
  const auto all_places = all_gather_text(world, world.host() + "\n" + lines_of(places));
  const auto first_with = [&](std::size_t rank) {
    return static_cast<std::size_t>(std::ranges::find(all_places, all_places[rank]) - all_places.begin());
  };
  if (std::ranges::count(all_places, all_places.front()) == world.size()) return {};
  const auto rank = static_cast<std::size_t>(world.rank());
  Findings findings;
  findings.attempt([&] {
    std::string mine;
    run_agreed(world, [&] {
      if (first_with(rank) == rank) mine = lines_of(file_claims(content_of, all_have_cuda));
    });
    auto contents = all_gather_text(world, mine);
    for (std::size_t other = 0; other < contents.size(); ++other) contents[other] = contents[first_with(other)];
    findings.add(differences(places, contents));
  });
  return findings;
}

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

}  // namespace tutti
