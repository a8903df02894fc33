#include "app/saving_run.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

namespace tutti::test {
namespace {

constexpr int kCannotSave = 73;

void check_mounted(int result) {
  if (result != 0) throw std::system_error(errno, std::generic_category(), "cannot mount a disk of a given size");
}

// A folder on a disk of so many KiB, which no other process sees.
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

// From one page to more than all files together take.
TEST(FullDisk, LosesNoAcceptedWorkWhateverItsSize) {
  check_mounted(::unshare(CLONE_NEWNS));
  check_mounted(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  const int sizes = std::stoi(std::getenv("TUTTI_DISK_SIZES"));
  int without_room = 0;
  for (int i = 1; i <= sizes; ++i) {
    const int kib = 4 * (100 * i / sizes);
    SCOPED_TRACE(testing::Message() << "a disk of " << kib << " KiB");
    SmallDisk disk(kib);
    const ChildResult run = run_saving(disk.path());
    EXPECT_TRUE(run.status == 0 || run.status == kCannotSave) << run.status << ": " << run.err;
    EXPECT_EQ(count(run.err, "\n"), count(run.err, "No space left on device; ")) << run.err;
    EXPECT_EQ(run.err.empty(), kib >= 400) << run.err;
    without_room += run.status == kCannotSave ? 1 : 0;
    EXPECT_TRUE(newest_good(disk.path()) || run.err.find("step 2 is not saved") != std::string::npos || kib < 100);
    disk.grow_to(1000);
    expect_good_end(disk.path(), run);
  }
  EXPECT_GT(without_room, 0);
  EXPECT_LT(without_room, sizes);
}

}  // namespace
}  // namespace tutti::test
