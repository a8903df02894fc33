#include "plan_choices.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <sstream>
#include <system_error>
#include <vector>

namespace tutti {
namespace {

std::string read_cache(const std::string& path) {
  std::error_code unseen;
  if (!std::filesystem::is_regular_file(path, unseen)) return {};
  const auto bytes = read_whole(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The file may hold those of several kinds.
void add_to_cache(const std::string& path, const std::vector<std::string>& chosen) {
  const std::string before = read_cache(path);
  std::string after = before;
  for (const std::string& lines : chosen) {
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      if (after.find(line + "\n") == std::string::npos) after += line + "\n";
    }
  }
  if (after != before) write_whole(path, std::as_bytes(std::span(after)));
}

}  // namespace

void adopt_known_choices(World& world, const RunConfig& config, const std::string& of_checkpoint, Backend& backend,
                         const Log& log) {
  run_agreed(world, [&] {
    if (!of_checkpoint.empty()) {
      if (backend.adopt_choices(of_checkpoint)) return;
      log.note("the checkpoint's choice of algorithms was made on another kind of GPU or library: bits will differ");
    }
    static_cast<void>(backend.adopt_choices(read_cache(config.plan_cache)));
  });
}

void build_alike(World& world, const RunConfig& config, Backend& backend, const std::function<void()>& build) {
  const bool measures = backend.memory_space() != MemorySpace::host;
  const auto kinds = all_gather_text(world, measures ? backend.description() : "");
  if (std::ranges::all_of(kinds, [](const std::string& kind) { return kind.empty(); })) {
    return run_agreed(world, build);
  }
  const auto rank = static_cast<std::size_t>(world.rank());
  const auto first = static_cast<std::size_t>(std::ranges::find(kinds, kinds[rank]) - kinds.begin());
  run_agreed(world, [&] {
    if (first == rank) build();
  });
  const auto chosen = all_gather_text(world, first == rank ? backend.choices() : "");
  run_agreed(world, [&] {
    const bool keeps = !config.plan_cache.empty() && config.search_plans == "on";
    if (world.rank() == 0 && keeps) add_to_cache(config.plan_cache, chosen);
    if (first == rank) return;
    backend.adopt_choices(chosen[first]);
    build();
  });
}

}  // namespace tutti
