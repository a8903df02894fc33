// trainer check, and the start of a training, with each kind of finding provoked.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>

namespace tutti::test {
namespace {

const char* const kMlp = "--data synthetic:256x1x8x8:4 --model mlp --batch-size 64 --threads 1 ";

ChildResult alone(const std::string& script) {
  return run_child({"/bin/sh", "-c", "T=$0; " + script, std::getenv("TUTTI_TRAINER")});
}
// Of one rank, without a launcher.
ChildResult check(int ranks, const std::string& options) {
  if (ranks == 1) return alone(fmt::format("exec \"$T\" check {}{}", kMlp, options));
  return run_trainer(ranks, with({"check"}, words_of(kMlp + options)));
}

template <class... Words>
void expect_failure(const ChildResult& result, const Words&... words) {
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, mentions("error: ", words...)) << result.err;
}

TEST(Check, FindsNothingWrongWithAGoodRunAndLeavesNothingBehind) {
  const ScratchFolder folder;
  const ChildResult result = check(2, "--out " + folder.file("deep/run") + " --json " + folder.file("check.json"));
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, mentions("ready: 2 ranks on 1 host, 2 threads on ", " MiB per rank of "));
  EXPECT_EQ(folder.entries(), 1U) << "check.json alone";
  const auto json = nlohmann::json::parse(read_text(folder.file("check.json")));
  EXPECT_EQ(json["verdict"], "ready");
  EXPECT_EQ(json["ranks"], 2);
}

TEST(Check, GoesOnAfterAFindingAndSortsThem) {
  const ScratchFolder folder;
  const ChildResult result =
      check(3, "--parts 2 --watch-interface eth99 --momentum 7 --out /proc/none --json " + folder.file("check.json"));
  expect_failure(result, "error: --watch-interface eth99: ", "error: 3 ranks cannot share 2 parts: ", "at most 2 ranks",
                 "error: --momentum 7", "/proc/none: cannot make /proc/none/checkpoints", "\nwill fail: 4 errors; ");
  const auto json = nlohmann::json::parse(read_text(folder.file("check.json")));
  EXPECT_EQ(json["verdict"], "will fail");
  EXPECT_EQ(json["findings"][0]["severity"], "error");
  EXPECT_EQ(check(1, "--no-such-option").status, 64);
}

// What training finds out when its parts are made.
TEST(Check, RefusesSchedulesStopsAndWeightsThatTrainingRefuses) {
  expect_failure(check(1, "--epochs 2 --warmup-epochs 3"), "--warmup-epochs 3 are 12 steps", "raise --epochs");
  for (const std::string option : {"--patience 2", "--stop-at-accuracy 0.9"}) {
    expect_failure(check(1, option + " --test-every 0"), "--stop-at-accuracy and --patience", "no --test-every 0");
  }
  const ScratchFolder folder;
  EXPECT_EQ(run_trainer({"--data", "synthetic:256x1x9x9:4", "--model", "mlp", "--steps", "1", "--threads", "1", "--out",
                         folder.path()})
                .status,
            0);
  const std::string other = "--init-from " + folder.path();
  expect_failure(check(1, other), "dense1/weight", "256x81", "256x64");
  EXPECT_EQ(alone(fmt::format("exec \"$T\" {} {}", kMlp, other)).status, 65);
}

TEST(Check, NamesPatternsThatMatchNoParameterOrLayer) {
  for (const std::string option : {"--lr-factors", "--decay-factors"}) {
    expect_failure(check(1, option + " 'dense2=2, neck=3'"), option + " neck=3: ", "it has dense2/weight");
  }
  expect_failure(check(1, "--freeze 'dense1, neck'"), "--freeze neck: the network mlp ", "it has dense1");
}

TEST(Check, ReportsOnceThatRanksDoNotFindEachOther) {
  const std::string words = fmt::format("\"$T\" check {}", kMlp);
  const ChildResult first = alone("PMI_SIZE=2 PMI_RANK=0 " + words);
  expect_failure(first, "started 2 processes", "start them with the mpiexec of that library");
  const ChildResult second = alone("PMI_SIZE=2 PMI_RANK=1 " + words);
  EXPECT_EQ(second.out, "");
  EXPECT_EQ(second.status, 0);
  EXPECT_EQ(alone("PMI_SIZE=2 PMI_RANK=0 " + words + "--json /proc/none/check.json").status, 73);
}

TEST(Check, NamesAnMpiWithoutThreads) {
  const std::string preload = fmt::format("LD_PRELOAD={} ", std::getenv("TUTTI_UNTHREADED_MPI"));
  const ChildResult result = run_script(2, fmt::format("{} exec \"$T\" check {}", preload, kMlp));
  expect_failure(result, "thread support 0", "MPI_THREAD_MULTIPLE (3)", "use a build");
  EXPECT_EQ(run_script(2, fmt::format("{} exec \"$T\" {}", preload, kMlp)).status, 64);
}

TEST(Check, NamesTheLargestLayerOfANetworkThatNoMemoryHolds) {
  const ScratchFolder folder;
  const std::string model = folder.file("huge.toml");
  std::ofstream(model) << "name = \"huge\"\n"
                          "[[layer]]\nname = \"wide\"\ntype = \"linear\"\nunits = 1000000000\n"
                          "[[layer]]\nname = \"head\"\ntype = \"linear\"\nunits = \"classes\"\n";
  const std::string words = "--data synthetic:64x1x12x12:4 --batch-size 64 --model " + model;
  const std::string largest =
      "(largest layer: wide: 1000000000x144 weights, 553131.1 MiB; output 1000000000 of 32 images";
  const ChildResult result = run_script(2, "exec \"$T\" check " + words);
  expect_failure(result, "2 ranks need about ", largest);
  EXPECT_THAT(run_script(2, "exec \"$T\" " + words), ends(65, largest));
}

TEST(Check, NamesRanksThatRunAnotherProgramOrOtherOptions) {
  const ScratchFolder folder;
  const std::string other = folder.file("trainer");
  std::filesystem::copy_file(std::getenv("TUTTI_TRAINER"), other);
  std::ofstream(other, std::ios::app) << '.';
  const std::string script =
      fmt::format("[ $RANK -lt 1 ] || T={}; export LD_LIBRARY_PATH=$(dirname $0); exec \"$T\" {{}} {}", other, kMlp);
  const ChildResult result = run_script(3, fmt::format(fmt::runtime(script), "check") + "--lr 0.0$RANK");
  expect_failure(result, "ranks 1-2 have another program file than rank 0, ", "install one build",
                 "error: rank 2 has another --lr than rank 0, 0.02 instead of 0.0: give all");
  const ChildResult start = run_script(3, fmt::format(fmt::runtime(script), ""));
  EXPECT_THAT(start, ends(65, "ranks 1-2 have another program file than rank 0, "));
  EXPECT_EQ(start.out, "");
}

TEST(Check, NamesRanksOfAHostThatUseOtherData) {
  const ChildResult result =
      run_script(2, "exec \"$T\" check --model mlp --threads 1 --data synthetic:1${RANK}0x1x8x8:4");
  expect_failure(result, "error: rank 1 requests other data than rank 0 ", "host, --data synthetic:110x");
}

TEST(Check, NamesWhatIsWrongWithTheFolderOfTheRun) {
  const ScratchFolder folder;
  std::ofstream(folder.file("file")) << "in the way";
  expect_failure(check(2, "--out " + folder.file("file/run")), "cannot make " + folder.file("file/run/checkpoints"));
  std::filesystem::create_symlink("nowhere", folder.file("link"));
  expect_failure(check(2, "--out " + folder.file("link")), "cannot make ");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  const std::string out = folder.file("run");
  ASSERT_EQ(alone(fmt::format("exec \"$T\" {}--steps 1 --quiet --out {}", kMlp, out)).status, 0);
  expect_failure(check(2, "--out " + out), "--out " + out + " holds checkpoints", "add --resume");
  expect_failure(check(2, "--resume --out " + out), "error: 2 ranks cannot share 1 part: ");  // of one rank
  EXPECT_EQ(check(1, "--resume --out " + out).status, 0);
  expect_failure(check(1, "--resume --out " + out + " --data synthetic:99x1x8x8:4"), "give the data of the run");
}

TEST(Check, NamesFaultsTracesAndTimesThatAStartWouldRefuse) {
  const ScratchFolder folder;
  expect_failure(check(1, "--trace /proc/none/trace.json --stall-timeout 0.5"), "cannot save '/proc/none/trace.json'",
                 "error: --stall-timeout 0.5: must be 1 to 1000000 ");
  expect_failure(check(2, "--rehearse trip:rank=1"), "--rehearse trip");
  const std::string out = folder.file("run");
  EXPECT_EQ(check(1, "--out " + out + " --trace " + out + "/trace.json").status, 0) << "the start makes the folder";
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(Check, NamesFilesThatCannotBeWrittenAsAStartDoes) {
  const ScratchFolder folder;
  const std::string path = folder.path();
  for (const std::string option : {"--trace", "--sample-log", "--plan-cache"}) {
    for (const std::string& file : {path, folder.file("none/file")}) {
      const std::string words = fmt::format("{} {} --steps 1", option, file);
      expect_failure(check(1, words), file);
      EXPECT_EQ(alone(fmt::format("exec \"$T\" {}{}", kMlp, words)).status, 73) << words;
    }
  }
  EXPECT_THAT(check(1, "--trace / --sample-log / --plan-cache /").out, mentions("will fail: 3 errors"));
  EXPECT_EQ(check(2, fmt::format("--trace {0}/a --sample-log {0}/b --plan-cache {0}/c", path)).status, 0);
  EXPECT_EQ(folder.entries(), 0U);
}

TEST(Check, NamesLimitsOfItsProcess) {
  const ScratchFolder folder;
  const ChildResult result =
      alone(fmt::format("ulimit -n 60; ulimit -f 128; exec \"$T\" check {} --out {}", kMlp, folder.path()));
  expect_failure(result, "files are limited to 0.", "(ulimit -f)", "warning: only 60 files ", "(ulimit -n)");
  expect_failure(run_script(2,
                            "ulimit -f 200000; exec \"$T\" check --threads 1 --model mlp --data "
                            "synthetic:120000x1x32x32:4"),
                 "MiB of shared memory are needed", "file size limit (ulimit -f)");
}

TEST(Check, OfTheStartIncludesTheCheckpointsThatItSaves) {
  const ScratchFolder folder;
  const ChildResult start = alone(fmt::format("ulimit -f 128; exec \"$T\" {} --out {}", kMlp, folder.path()));
  EXPECT_THAT(start, ends(73, "files are limited to 0.", "(ulimit -f)"));
}

TEST(Check, IsPartOfTheStartWhichReportsALimitOnce) {
  const ChildResult start = alone(fmt::format("ulimit -n 60; exec \"$T\" {} --steps 1", kMlp));
  EXPECT_EQ(start.status, 0) << start.err;
  EXPECT_EQ(count(start.err, "warning: only 60 files may be open at once (ulimit -n)"), 1) << start.err;
}

TEST(Check, NamesInsufficientMemoryAndThreadsWithoutCores) {
  const ChildResult large = run_trainer(1, words_of("check --model vgg11 --data synthetic:64x3x32x32:4 --batch-size "
                                                    "9000000 --threads 4000 --steps 1"));
  expect_failure(large, ": 1 rank needs about ", "give a smaller --batch-size", "computes with 4000 threads on ");
}

TEST(Check, NamesABatchThatTheTrainingSetDoesNotFill) {
  const ChildResult kept = check(2, "--batch-size 512");
  EXPECT_EQ(kept.status, 0) << kept.out;
  EXPECT_THAT(kept.out, mentions("warning: all ranks: --batch-size 512 is more than 256 training images"));
  const ScratchFolder folder;
  const ChildResult discarded = check(2, "--batch-size 512 --last-batch discard --out " + folder.file("run"));
  expect_failure(discarded, "error: 256 samples ", "a batch of 512 with --last-batch discard: lower --batch-size",
                 "\nwill fail: 1 error; ");
}

TEST(Check, WarnsOfSmallAndEmptyPartsAndGoesOn) {
  const ChildResult empty = check(2, "--parts 8 --batch-size 5");
  EXPECT_EQ(empty.status, 0) << empty.out;
  EXPECT_THAT(empty.out, mentions("warning: all ranks: a batch of 5 samples leaves 3 of 8 parts empty",
                                  "give a larger --batch-size"));
  const ChildResult start =
      run_trainer(2, with(words_of(kMlp), words_of("--parts 8 --batch-size 5 --steps 1 --quiet")));
  EXPECT_EQ(start.status, 0);
  EXPECT_EQ(count(start.err, "warning: all ranks: a batch of 5 samples leaves 3 of 8 parts empty"), 1) << start.err;
}

}  // namespace
}  // namespace tutti::test
