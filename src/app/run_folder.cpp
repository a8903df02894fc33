#include "run_folder.hpp"

#include "preflight/out_folder.hpp"

#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

// A job that was killed may take a moment to be gone, on other hosts too.
constexpr double kLockPatienceSeconds = 20;

}  // namespace

RunFolder::RunFolder(World& world, const RunConfig& config, const Log& log) : store_(config.out + "/checkpoints") {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    make_run_folder(config, store_.folder());
    lock_.emplace(config.out, kLockPatienceSeconds, log);
    refuse_old_checkpoints(config, store_);
    store_.clear_leftovers();
    std::error_code absent;
    std::filesystem::remove(std::filesystem::path(config.out) / "exit.json", absent);
  });
  owned_ = OwnedFolder(config.out, broadcast_text(world, lock_ ? lock_->text() : "", 0));
  store_ = CheckpointStore(store_.folder(), [owned = owned_] { owned.require(); });
}

}  // namespace tutti
