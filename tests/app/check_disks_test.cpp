// trainer check, and training, with a folder or shared memory that is too small, or that differs between ranks, each in
// its own mount namespace.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace tutti::test {
namespace {

using testing::ContainsRegex;
using testing::Not;

const char* const kOptions = "--model mlp --batch-size 64 --threads 1 --data synthetic:256x1x8x8:4";

TEST(CheckOnDisks, NamesRanksThatDoNotSeeTheFolderOfTheRun) {
  const ScratchFolder folder;
  const ChildResult result = run_script(
      2,
      fmt::format("[ $RANK = 0 ] && exec \"$T\" check {0} --out {1}; exec unshare --mount sh -c 'mount -t tmpfs none "
                  "{1} && exec \"$0\" check {0} --out {1}' \"$T\"",
                  kOptions, folder.path()),
      {{"OMPI_MCA_btl_vader_backing_directory", "/tmp"}});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, mentions("warning: rank 1 on ", "rank 0 writes to --out " + folder.path(),
                                   "choose a folder that all share"));
  EXPECT_EQ(folder.entries(), 0U);
}

// The run agrees with the findings of the check, on disks of all sizes. A checkpoint takes 0.19 MiB.
TEST(CheckOnDisks, NamesADiskTooSmallForTwoCheckpointsOrForAllRetainedOnes) {
  bool has_failed = false;
  bool has_been_warned = false;
  for (const int kib : {140, 280, 340, 420, 500, 620, 760, 860, 1000}) {
    SCOPED_TRACE(testing::Message() << "a disk of " << kib << " KiB");
    const ScratchFolder folder;
    const ChildResult result = run_child(
        {"unshare", "--mount", "sh", "-c",
         fmt::format("mount -t tmpfs -o size={}k none {} && \"$0\" check {} --epochs 6 --out {}; echo status $?; exec "
                     "\"$0\" {} --epochs 6 --out {}/a",
                     kib, folder.path(), kOptions, folder.path(), kOptions, folder.path()),
         std::getenv("TUTTI_TRAINER")});
    const bool fails = result.out.find("status 1\n") != std::string::npos;
    const bool warned = result.out.find("the oldest will be deleted early; make room for ") != std::string::npos;
    if (fails) {
      EXPECT_THAT(result.out, mentions("error: ", "--out " + folder.path(), "verified: make room for 0."));
    } else {
      EXPECT_EQ(result.status, 0) << result.err;
      EXPECT_EQ(result.err.find("evicted ") == std::string::npos, !warned) << result.err;
      EXPECT_THAT(result.err, Not(mentions("is not saved")));
    }
    if (fails && kib < 300) {
      EXPECT_EQ(result.status, 73) << result.err;
    }
    has_failed = has_failed || fails;
    has_been_warned = has_been_warned || warned;
  }
  EXPECT_TRUE(has_failed);
  EXPECT_TRUE(has_been_warned);
}

// --keep-steps auto is the default of tools/run, which must not stop a run that needs no such memory.
TEST(CheckOnDisks, NamesSharedMemoryTooSmallForKeptStates) {
  const ScratchFolder folder;
  const auto run = [&](const std::string& keep) {
    return run_child(
        {"unshare", "--mount", "sh", "-c",
         fmt::format("mount -t tmpfs -o size=256k none /dev/shm && exec \"$0\" {} --out {} --keep-steps {}", kOptions,
                     folder.file(keep), keep),
         std::getenv("TUTTI_TRAINER")});
  };
  EXPECT_THAT(run("1"), ends(65, "3 states", "/dev/shm", "--keep-steps", "remount,size="));
  EXPECT_THAT(run("auto"), ends(0, "3 states", "/dev/shm", "warning", "remount,size="));
}

TEST(CheckOnDisks, NamesSharedMemoryTooSmallForTheData) {
  const ScratchFolder folder;
  const auto run = [&](const std::string& command) {
    return run_child(
        {"unshare", "--mount", "sh", "-c",
         fmt::format("mount -t tmpfs -o size=16m none /dev/shm && exec {} -n 2 \"$0\" {} --model mlp --threads 1 "
                     "--data synthetic:40000x1x32x32:4 --out {}",
                     std::getenv("TUTTI_MPIEXEC"), command, folder.path()),
         std::getenv("TUTTI_TRAINER")},
        {{"OMPI_MCA_btl_vader_backing_directory", "/tmp"}});
  };
  const ChildResult checked = run("check");
  EXPECT_EQ(checked.status, 1) << checked.out << checked.err;
  EXPECT_THAT(checked.out, mentions("MiB of shared memory are needed", "mount -o remount,size=.. /dev/shm"));
  const ChildResult trained = run("train");
  EXPECT_THAT(trained.err, mentions("MiB of shared memory are needed"));
  EXPECT_THAT(read_text(folder.file("exit.json")), mentions("\"status\":65,"));
}

TEST(TrainingOnDisks, EndsAtOnceOnlyIfThatIsAskedFor) {
  for (const bool stops : {false, true}) {
    const ScratchFolder folder;
    const ChildResult result = run_child(
        {"unshare", "--mount", "sh", "-c",
         fmt::format("mount -t tmpfs -o size=100k none {0} && exec {2} -n 2 \"$0\" {1} --epochs 3 --checkpoint-every "
                     "2steps --out {0} {3}",
                     folder.path(), kOptions, std::getenv("TUTTI_MPIEXEC"), stops ? "--on-save-failure stop" : ""),
         std::getenv("TUTTI_TRAINER")},
        {{"OMPI_MCA_btl_vader_backing_directory", "/tmp"}});
    EXPECT_THAT(result.err, ContainsRegex(stops ? "the checkpoint of step [24] could not be saved, and "
                                                  "--on-save-failure is stop: "
                                                : "the last state could not be saved: "));
    EXPECT_EQ(result.out.find("epoch 3/3") == std::string::npos, stops) << result.out;
    EXPECT_EQ(result.status, 73);
  }
}

}  // namespace
}  // namespace tutti::test
