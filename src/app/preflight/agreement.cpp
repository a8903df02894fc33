#include "agreement.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/crc32c.hpp"
#include "tutti/base/version.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/whole_file.hpp"

#include "../cuda_loader.hpp"
#include "../option_table.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <sstream>
#include <system_error>

namespace tutti {
namespace {

constexpr const char* kSame = "give all ranks the same";

std::string file_text(const std::string& path) {
  std::error_code absent;
  if (!std::filesystem::exists(path, absent)) return "none";
  const auto bytes = read_whole(path);
  return fmt::format("{} bytes {:08x}", bytes.size(), crc32c(bytes));
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
          {"--rehearse", fmt::format("'{}'", config.rehearse), kSame}};
}

std::vector<Claim> program_claims(const std::string& description) {
  const std::string remedy = "install one build where all hosts find it, and start that";
  const std::string library = library_path();
  return {{"program file", file_text("/proc/self/exe"), remedy},
          {"libtutti.so", file_text(library), remedy},
          {"libtutti_cuda.so", file_text(cuda_library_path()), remedy},
          {"version", std::string(version()), remedy},
          {"MPI library", description, "load the same modules on all hosts"},
          {"compute library", cpu_library_version(), "load the same modules on all hosts"},
          {"HDF5", array_library_version(), "load the same modules on all hosts"}};
}

Findings compare(World& world, const std::vector<Claim>& claims) {
  std::string mine;
  for (const Claim& claim : claims) mine += claim.value + "\n";
  const auto all = all_gather_text(world, mine);
  std::vector<std::istringstream> lines(all.begin(), all.end());
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

}  // namespace tutti
