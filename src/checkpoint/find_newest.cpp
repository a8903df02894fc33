#include "tutti/base/error.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"

#include "shared_load.hpp"
#include "step_folder.hpp"
#include "verification.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <ranges>
#include <set>
#include <string>
#include <utility>

namespace tutti {
namespace {

struct Found {
  LoadedCheckpoint loaded;  // without a path: none
  CheckpointBytes bytes;
};

bool is_damage(const Error& error) { return error.source() == ErrorSource::checkpoint; }

// So that no later start tries it again. Where that fails, it will be: nothing is lost but time.
void mark_bad(const std::string& folder, const StepFolder& listing, std::int64_t step) {
  for (const StepName& file : listing.files) {
    if (file.step != step) continue;
    StepName bad = file;
    bad.bad = true;
    const std::string path = folder + "/" + file.text();
    static_cast<void>(std::rename(path.c_str(), (folder + "/" + bad.text()).c_str()));
  }
}

Found find_newest(const std::string& folder, const Log& log, Damaged damaged) {
  const StepFolder listing = list_steps(folder);
  const std::set<std::int64_t> steps = listing.complete();
  for (const std::int64_t step : std::views::reverse(steps)) {
    const std::string path = folder + "/" + image_name(step);
    try {
      CheckpointBytes bytes = read_checkpoint_bytes(path);
      TrainState state = state_of(bytes, path);
      return {.loaded = {.state = std::move(state), .path = path}, .bytes = std::move(bytes)};
    } catch (const Error& error) {
      if (!is_damage(error) && error.source() != ErrorSource::io) throw;
      log.warn(fmt::format("passed over checkpoint '{}': {}", path, error.what()));
      if (is_damage(error) && damaged == Damaged::marked) mark_bad(folder, listing, step);
    }
  }
  if (listing.files.empty() && !listing.any_bad) return {};
  throw Error(
      ErrorSource::checkpoint,
      fmt::format("no checkpoint in '{}' is good and has its manifest: restore one from a copy, or start anew in "
                  "another folder",
                  folder));
}

}  // namespace

std::optional<LoadedCheckpoint> CheckpointStore::newest(World& world, const Log& log, Damaged damaged) const {
  Found found;
  run_agreed(world, [&] {
    if (world.rank() == 0) found = find_newest(folder_, log, damaged);
  });
  LoadedCheckpoint& loaded = found.loaded;
  loaded.path = broadcast_text(world, loaded.path, 0);
  if (loaded.path.empty()) return std::nullopt;
  const CheckpointBytes bytes = broadcast_checkpoint(world, std::move(found.bytes));
  run_agreed(world, [&] {
    if (world.rank() != 0) loaded.state = state_of(bytes, loaded.path);
  });
  return std::move(loaded);
}

}  // namespace tutti
