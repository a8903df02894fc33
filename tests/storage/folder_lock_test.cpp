#include "tutti/storage/folder_lock.hpp"

#include "tutti/base/process.hpp"
#include "tutti/storage/atomic_file.hpp"

#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace tutti {
namespace {

void simulate_slurm(const char* job, const char* restart) {
  ::setenv("SLURM_JOB_ID", job, 1);
  ::unsetenv("SLURM_RESTART_COUNT");
  if (restart != nullptr) ::setenv("SLURM_RESTART_COUNT", restart, 1);
}

class FolderLocks : public testing::Test {
 protected:
  void SetUp() override { leave_slurm(); }
  void TearDown() override { leave_slurm(); }

  static void leave_slurm() {
    ::unsetenv("SLURM_JOB_ID");
    ::unsetenv("SLURM_RESTART_COUNT");
  }

  ScratchFolder folder_;
};

// Another process that holds the lock until it is killed.
class Holder {
 public:
  explicit Holder(const std::string& folder) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      const FolderLock lock(folder, 0, Log());
      if (::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    if (::read(ready[0], &byte, 1) != 1) throw std::runtime_error("the holder has not got the lock");
    ::close(ready[0]);
  }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  ~Holder() { kill(); }

  pid_t process() const { return process_; }
  void kill() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

TEST_F(FolderLocks, EmptiesNoFileBehindALinkAndWaitsAtNoPipe) {
  const ScratchFolder folder;
  write_atomically(folder.file("precious"), std::as_bytes(std::span("text")));
  std::filesystem::create_symlink("precious", folder.file("lock"));
  EXPECT_THAT(thrown_by([&] { FolderLock(folder.path(), 0, Log(0, {}, true)); }).what(), mentions("remove or rename"));
  EXPECT_NO_THROW(refuse_locked(folder.path()));
  EXPECT_EQ(read_file_bytes(folder.file("precious")).size(), sizeof "text");
  std::filesystem::remove(folder.file("lock"));
  ASSERT_EQ(::mkfifo(folder.file("lock").c_str(), 0600), 0);
  EXPECT_THAT(thrown_by([&] { FolderLock(folder.path(), 0, Log(0, {}, true)); }).what(), mentions("remove or rename"));
  EXPECT_NO_THROW(refuse_locked(folder.path()));
}

TEST_F(FolderLocks, RefuseASecondHolderAndNameTheFirst) {
  const Holder holder(folder_.path());
  EXPECT_THAT(
      thrown_by([&] { FolderLock(folder_.path(), 0.1, Log()); }),
      reports(ErrorSource::input, folder_.path(),
              "host " + host_name() + ", process " + std::to_string(holder.process()) + ":", "choose another --out"));
}

TEST_F(FolderLocks, AreFreeAgainWhenTheirHolderIsKilled) {
  Holder holder(folder_.path());
  holder.kill();
  { const FolderLock lock(folder_.path(), 0, Log()); }
  const Holder next(folder_.path());
}

TEST_F(FolderLocks, WaitForAHolderThatIsEnding) {
  const Holder holder(folder_.path());
  const pid_t ender = ::fork();
  if (ender == 0) {
    ::usleep(100'000);
    ::_exit(::kill(holder.process(), SIGKILL));
  }
  const FolderLock lock(folder_.path(), 60, Log());
  ::waitpid(ender, nullptr, 0);
}

TEST_F(FolderLocks, LetALaterStartOfTheSameSlurmJobPass) {
  simulate_slurm("4711", nullptr);
  Holder holder(folder_.path());
  testing::internal::CaptureStderr();
  simulate_slurm("4711", "2");
  const FolderLock lock(folder_.path(), 0, Log());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), mentions("Slurm job 4711 restart 0: taking it over"));
  holder.kill();
  EXPECT_THAT(thrown_by([&] { FolderLock(folder_.path(), 0, Log()); }).what(), mentions("Slurm job 4711 restart 2:"));
}

TEST_F(FolderLocks, RefuseOtherSlurmJobsAndEqualStarts) {
  simulate_slurm("4711", "1");
  const Holder holder(folder_.path());
  for (const char* job : {"4711", "471", "47112"}) {
    simulate_slurm(job, job == std::string_view("4711") ? "1" : "2");
    EXPECT_THAT(thrown_by([&] { FolderLock(folder_.path(), 0, Log()); }).what(), mentions("job 4711 restart 1:"));
  }
  leave_slurm();
  EXPECT_EQ(thrown_by([&] { FolderLock(folder_.path(), 0, Log()); }).source(), ErrorSource::input);
}

TEST_F(FolderLocks, NameTheRemedyWhereTheFolderCannotBeWritten) {
  EXPECT_THAT(thrown_by([&] { FolderLock(folder_.file("none"), 0, Log()); }),
              reports(ErrorSource::save, "make the folder first"));
}

TEST_F(FolderLocks, AreIdentifiedByTheirTextUntilTheyAreReplaced) {
  const FolderLock lock(folder_.path(), 0, Log());
  const OwnedFolder owned(folder_.path(), lock.text());
  EXPECT_EQ(owned.loss_reason(), "");
  EXPECT_NO_THROW(owned.require());
  EXPECT_EQ(OwnedFolder().loss_reason(), "");

  const std::string moved = folder_.path() + "-moved";
  std::filesystem::rename(folder_.path(), moved);
  EXPECT_THAT(owned.loss_reason(), mentions("removed or renamed"));
  EXPECT_THROW(owned.require(), Error);
  EXPECT_EQ(OwnedFolder(moved, lock.text()).loss_reason(), "");

  std::filesystem::create_directory(folder_.path());
  const FolderLock other(folder_.path(), 0, Log());  // of a process of the same number
  EXPECT_THAT(owned.loss_reason(), mentions("in use by host "));
  std::filesystem::remove_all(moved);
}

TEST_F(FolderLocks, AreLostToPipesAndLinksInTheirPlaceWithoutWaiting) {
  const FolderLock lock(folder_.path(), 0, Log());
  const OwnedFolder owned(folder_.path(), lock.text());
  std::filesystem::rename(folder_.file("lock"), folder_.file("other"));
  ASSERT_EQ(::mkfifo(folder_.file("lock").c_str(), 0600), 0);
  EXPECT_THAT(owned.loss_reason(), mentions("is no longer this run's file"));
  std::filesystem::remove(folder_.file("lock"));
  std::filesystem::create_symlink("other", folder_.file("lock"));
  EXPECT_THAT(owned.loss_reason(), mentions("is no longer this run's file"));
}

TEST_F(FolderLocks, AreQueriedWithoutBeingChanged) {
  EXPECT_NO_THROW(refuse_locked(folder_.path()));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("lock")));
  simulate_slurm("4711", "1");
  const Holder holder(folder_.path());
  leave_slurm();
  EXPECT_THAT(thrown_by([&] { refuse_locked(folder_.path()); }).what(), mentions("choose another --out"));
  simulate_slurm("4711", "2");
  EXPECT_NO_THROW(refuse_locked(folder_.path()));
}

}  // namespace
}  // namespace tutti
