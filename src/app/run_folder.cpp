#include "run_folder.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

// A job that was killed may take a moment to be gone, on other hosts too.
constexpr double kLockPatienceSeconds = 20;

void make_folder(const RunConfig& config, const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (!failure) return;
  throw Error(ErrorSource::save, fmt::format("--out {}: cannot make {}: {}; choose a folder that can be written",
                                             config.out, folder, failure.message()));
}

}  // namespace

RunFolder::RunFolder(World& world, const RunConfig& config, const Log& log) : store_(config.out + "/checkpoints") {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    make_folder(config, store_.folder());
    lock_.emplace(config.out, kLockPatienceSeconds, log);
    if (!config.resume && store_.holds_any()) {
      throw Error(ErrorSource::input,
                  fmt::format("--out {} holds checkpoints of an earlier run: add --resume to go on with it, or choose "
                              "another folder",
                              config.out));
    }
    store_.clear_leftovers();
    std::error_code absent;
    std::filesystem::remove(std::filesystem::path(config.out) / "exit.json", absent);
  });
}

}  // namespace tutti
