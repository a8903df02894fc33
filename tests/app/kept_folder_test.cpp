#include "kept_states.hpp"
#include "support/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Cleaners of /dev/shm do so at the end of a user's session, for example. Others must still not read it.
TEST(KeptFolder, IsMadeAgainForItsOwnerAloneIfItIsRemovedDuringTheRun) {
  const ScratchFolder folder;
  const auto world = make_solo_world();
  const KeptStates kept(*world, folder.path());
  kept.begin(0);
  fs::remove_all(kept.folder());
  kept.store().clear_leftovers();
  EXPECT_EQ(fs::status(kept.folder()).permissions(), fs::perms::owner_all);
  kept.remove();
  EXPECT_FALSE(fs::exists(kept.folder()));
}

}  // namespace
}  // namespace tutti
