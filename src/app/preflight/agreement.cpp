#include "agreement.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/process.hpp"
#include "tutti/storage/array_file.hpp"
#include "tutti/storage/atomic_file.hpp"
#include "tutti/train/trainer_options.hpp"

#include "../option_table.hpp"
#include "../processors.hpp"
#include "host.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kSame = "give all ranks the same";

std::string content_of(const std::string& path) {
  if (!file_exists(path)) return "none";
  const auto bytes = read_file_bytes(path);
  return fmt::format("{} bytes {:08x}", bytes.size(), crc32c(bytes));
}

// Equal for two paths on a host if they are the same file.
std::string file_identity(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "none";
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

// The ranks with another text than rank 0, by that text.
std::map<std::string, std::vector<int>> others_than_rank_0(const std::vector<std::string>& by_rank) {
  std::map<std::string, std::vector<int>> others;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] != by_rank[0]) others[by_rank[rank]].push_back(static_cast<int>(rank));
  }
  return others;
}

std::string joined_lines(const std::vector<AgreedValue>& values) {
  std::string lines;
  for (const AgreedValue& item : values) lines += item.value + "\n";
  return lines;
}

Findings differences(const std::vector<AgreedValue>& values, const std::vector<std::string>& lines_by_rank) {
  std::vector<std::istringstream> lines(lines_by_rank.begin(), lines_by_rank.end());
  Findings findings;
  for (const AgreedValue& item : values) {
    std::vector<std::string> by_rank(lines.size());
    for (std::size_t rank = 0; rank < lines.size(); ++rank) std::getline(lines[rank], by_rank[rank]);
    for (const auto& [value, ranks] : others_than_rank_0(by_rank)) {
      findings.fail(ErrorSource::input, "{} {} another {} than rank 0, {} instead of {}: {}", ranks_text(ranks),
                    ranks.size() == 1 ? "has" : "have", item.what, value, by_rank[0], item.remedy);
    }
  }
  return findings;
}

// The processor in a line of versions, after the first "; ": "cpu: AVX2" of "tutti 1.0; cpu: AVX2; Open MPI 4.1.4".
std::string processor_in(const std::string& versions) {
  const std::size_t device = versions.find("; ");
  if (device == std::string::npos) return {};
  return versions.substr(device + 2, versions.find(';', device + 2) - device - 2);
}

// The values that decide which collectives a rank calls.
std::vector<AgreedValue> agreed_control_flow(const RunConfig& config) {
  return {{"--out", fmt::format("'{}'", config.output.folder), kSame},
          {"--resume", config.output.resume ? "'true'" : "'false'", kSame},
          {"--dry-run", config.dry_run ? "'true'" : "'false'", kSame},
          {"--init-from", fmt::format("'{}'", config.init_from), kSame},
          {"--trace", fmt::format("'{}'", config.output.trace), kSame},
          {"--rehearse", fmt::format("'{}'", config.rehearse), kSame}};
}

}  // namespace

std::vector<AgreedValue> agreed_options(RunConfig config) {
  std::vector<AgreedValue> values;
  for (const Option& option : run_options(config)) {
    const bool is_agreed = option.use == OptionUse::fixed || option.use == OptionUse::replayed ||  //
                           option.use == OptionUse::changeable;
    if (!is_agreed) continue;
    if (option.name == "device") continue;  // checked by choose_communicator()
    values.push_back({"--" + option.name, value_text(option), kSame});
  }
  return values;
}

std::vector<AgreedValue> agreed_versions(const std::string& description) {
  const std::string remedy = "load the same modules on all hosts";
  return {{"version of Tutti", std::string(version()), remedy},
          {"MPI library", description, remedy},
          {"HDF5", array_library_version(), remedy}};
}

Findings check_processors(World& world, const RunConfig& config, const Backend& backend,
                          const std::optional<LoadedCheckpoint>& resumed) {
  const bool promises_bits = config.exchange == Exchange::exact;
  const bool refuses = promises_bits && !config.allow_mixed_processors;
  const std::string remedy = std::string("use CPUs alone or one kind of GPU") +
                             (refuses ? ", or accept it with --allow-mixed-processors" : "");
  Findings findings;
  const auto add = [&](const std::string& text) {
    findings.add({.severity = refuses ? Severity::error : Severity::warning,
                  .source = ErrorSource::input,
                  .text = text + ": " + remedy});
  };
  const auto by_rank = all_gather_text(world, processor_kind(backend.description()));
  const std::string& first = by_rank.front();
  for (const auto& [kind, ranks] : others_than_rank_0(by_rank)) {
    add(fmt::format("{} {} with {}, and rank 0 with {}, so the bits depend on which rank computes which part",
                    ranks_text(ranks), ranks.size() == 1 ? "computes" : "compute", kind, first));
  }
  if (!resumed) return findings;
  const std::string of_checkpoint = processor_in(resumed->state.versions);
  const std::string stored = processor_kind(of_checkpoint);
  if (!stored.empty() && stored != first) {
    add(fmt::format(
        "{} was computed with {}, and rank 0 has {}, so the result will not be bit-identical to an uninterrupted run",
        resumed->path, stored, first));
  } else if (of_checkpoint.find("oneDNN") != std::string::npos) {
    findings.warn(
        "{} was computed by an earlier version with oneDNN, so the result will not be bit-identical to an "
        "uninterrupted run: continue with that version if it has to be",
        resumed->path);
  }
  return findings;
}

Findings compare_across_ranks(World& world, const std::vector<AgreedValue>& values) {
  return differences(values, all_gather_text(world, joined_lines(values)));
}

Findings compare_programs(World& world) {
  std::vector<std::pair<const char*, std::string>> files{{"program file", "/proc/self/exe"},
                                                         {"libtutti.so", library_path()}};
  // Hosts without GPUs do not need it.
  const bool all_have_cuda = world.all_true(file_exists(cuda_library_path()));
  if (all_have_cuda) files.emplace_back("libtutti_cuda.so", cuda_library_path());
  std::string mine = world.host();
  for (const auto& [what, path] : files) mine += "\n" + file_identity(path);
  const auto identities = all_gather_text(world, mine);
  if (others_than_rank_0(identities).empty()) return {};
  const auto first_with_files_of = [&](std::size_t rank) {
    return static_cast<std::size_t>(std::ranges::find(identities, identities[rank]) - identities.begin());
  };
  const auto rank = static_cast<std::size_t>(world.rank());
  Findings findings;
  findings.attempt([&] {
    std::vector<AgreedValue> contents;
    run_or_throw_on_all(world, [&] {
      for (const auto& [what, path] : files) {
        contents.push_back({what, first_with_files_of(rank) == rank ? content_of(path) : "",
                            "install one build where all hosts can read it, and start that"});
      }
    });
    auto lines = all_gather_text(world, joined_lines(contents));
    for (std::size_t other = 0; other < lines.size(); ++other) lines[other] = lines[first_with_files_of(other)];
    findings.add(differences(contents, lines));
  });
  return findings;
}

Findings quick_checks(World& world, const RunConfig& config) {
  std::vector<AgreedValue> values = agreed_control_flow(config);
  for (AgreedValue& item : agreed_versions(world.description())) values.push_back(std::move(item));
  Findings findings = compare_across_ranks(world, values);
  findings.add(compare_programs(world));
  if (world.local_size() < world.size()) {
    findings.add(check_clocks(all_gather_text(world, world.host()), seconds_ahead(world)));
  }
  findings.add(gather(world, check_open_files(process_limits(), world.local_size())));
  return findings;
}

}  // namespace tutti
