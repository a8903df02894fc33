#include "app/saving_run.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <system_error>

namespace tutti::test {
namespace {

constexpr int kDiskIsFull = 73;
constexpr int kMostPages = 64;

void check_mounted(int result) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), "cannot mount a disk of a given size");
}

// A folder on a disk of a given size in KiB, which no other process sees.
class SmallDisk {
 public:
  explicit SmallDisk(int kib) { check_mounted(::mount("none", folder_.path().c_str(), "tmpfs", 0, size(kib).c_str())); }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() { ::umount(folder_.path().c_str()); }

  const std::string& path() const { return folder_.path(); }
  void grow_to(int kib) {
    check_mounted(::mount("none", folder_.path().c_str(), "tmpfs", MS_REMOUNT, size(kib).c_str()));
  }

 private:
  static std::string size(int kib) { return "size=" + std::to_string(kib) + "k"; }

  ScratchFolder folder_;
};

// Whether a save must have succeeded: training began, and did not report that all of them failed.
bool has_saved(const ChildResult& run) {
  if (run.status != 0 && run.err.find("is not saved") == std::string::npos) return false;
  return std::ranges::any_of(std::array{"step 2 is not", "step 4 is not", "step 6 is not", "step 8 is not"},
                             [&](const char* failure) { return run.err.find(failure) == std::string::npos; });
}

// Disk sizes from a few pages, too small for any file, to more than the size of all files.
TEST(FullDisk, LosesNoSavedWorkWhateverItsSize) {
  check_mounted(::unshare(CLONE_NEWNS));
  check_mounted(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  const int sizes = std::stoi(std::getenv("TUTTI_DISK_SIZES"));
  int ended = 0;
  for (int i = 1; i <= sizes; ++i) {
    const int kib = 4 * (kMostPages * i / sizes);
    SCOPED_TRACE(testing::Message() << "a disk of " << kib << " KiB");
    SmallDisk disk(kib);
    const ChildResult run = run_saving(disk.path());
    EXPECT_TRUE(run.status == 0 || run.status == kDiskIsFull) << run.status << ": " << run.err;
    EXPECT_EQ(count(run.err, "\n"), count(run.err, "No space left on device; ")) << run.err;
    if (has_saved(run)) {
      EXPECT_TRUE(newest_good(disk.path())) << "no good checkpoint is left";
    }
    ended += run.status == 0 ? 1 : 0;
    disk.grow_to(2 * 4 * kMostPages);
    expect_good_end(disk.path(), run);
  }
  EXPECT_GT(ended, 0);
  EXPECT_LT(ended, sizes);
}

}  // namespace
}  // namespace tutti::test
