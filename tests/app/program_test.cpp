#include "support/child_process.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using Words = std::vector<std::string>;

// A run of a second or so.
Words quick(const Words& more = {}) {
  Words words{"--data", "synthetic:512x1x12x12:4", "--model", "mlp", "--epochs", "2", "--batch-size", "64"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The text of the epoch lines without their times.
std::string curve(const std::string& out) {
  std::string kept;
  for (std::size_t begin = 0; begin < out.size();) {
    const std::size_t end = std::min(out.find('\n', begin), out.size());
    const std::string line = out.substr(begin, end - begin);
    if (line.starts_with("epoch ")) kept += line.substr(0, line.find(", time")) + "\n";
    begin = end + 1;
  }
  return kept;
}

TEST(Program, TrainsWithoutALauncher) {
  const ChildResult result = run_trainer(quick());
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_TRUE(result.out.starts_with("epoch 1/2, loss ")) << result.out;
  EXPECT_EQ(count(result.out, "\n"), 2) << result.out;
  EXPECT_NE(result.err.find("no launcher"), std::string::npos) << result.err;
}

TEST(Program, TrainsOnOneFourAndSixteenRanks) {
  for (const int ranks : {1, 4, 16}) {
    const ChildResult result = run_trainer(ranks, quick());
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_EQ(count(result.out, "epoch "), 2) << result.out;
  }
}

TEST(Program, PrintsTheSameAtEqualRankCounts) {
  const std::string once = curve(run_trainer(3, quick()).out);
  EXPECT_EQ(count(once, "epoch"), 2);
  EXPECT_EQ(curve(run_trainer(3, quick()).out), once);
}

TEST(Program, NeverChangesABitByThePreparationOfBatches) {
  const std::string ahead = curve(run_trainer(2, quick({"--in-flight", "2"})).out);
  EXPECT_EQ(curve(run_trainer(2, quick({"--in-flight", "0"})).out), ahead);
}

TEST(Program, PrintsHelpAndVersionOnceAndEndsWell) {
  for (const char* word : {"--help", "--version"}) {
    const ChildResult result = run_trainer(3, {word});
    EXPECT_EQ(result.status, 0);
    EXPECT_EQ(count(result.out, word == std::string("--help") ? "Usage" : "oneDNN"), 1) << result.out;
  }
}

TEST(Program, DryRunPrintsWhatCanBeRunAgain) {
  const TemporaryFolder folder;
  const ChildResult printed = run_trainer(2, quick({"--dry-run"}));
  EXPECT_EQ(printed.status, 0) << printed.err;
  EXPECT_NE(printed.out.find("parts = 2\n"), std::string::npos) << printed.out;
  const std::string path = folder.path() + "/run.toml";
  const ChildResult saved = run_child({"sh", "-c", "printf '%s' \"$TEXT\" > " + path}, {{"TEXT", printed.out}});
  ASSERT_EQ(saved.status, 0);
  EXPECT_EQ(run_trainer(2, {"--config", path, "--dry-run"}).out, printed.out);
}

struct Refusal {
  Words words;
  int status;
  std::string reason;
};

TEST(Program, RefusesMistakesOnceWithTheirStatus) {
  const std::vector<Refusal> refusals{
      {{"--bach-size", "3"}, 64, "see trainer --help"},
      {{"--last-batch", "drop"}, 64, "keep, discard or rollover"},
      {{"--model", "lenat"}, 64, "no model is called 'lenat'"},
      {{"--parts", "2", "--exchange", "ring"}, 64, "3 ranks cannot share 2 parts"},
      {{"--parts", "8"}, 64, "add --exchange ring"},
      {{"--resume"}, 64, "--resume wants --out"},
      {{"--device", "cuda"}, 64, "cuda"},
      {{"--data", "no-such-data"}, 74, "no-such-data"},
      {{"--data", "synthetic:64x1x6x6:3", "--model", "lenet"}, 65, "layer conv2"},
      {{"--out", "/proc/none"}, 73, "/proc/none"},
  };
  for (const Refusal& refusal : refusals) {
    const ChildResult result = run_trainer(3, refusal.words);
    EXPECT_EQ(result.status, refusal.status) << refusal.reason << "\n" << result.err;
    EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
    EXPECT_NE(result.err.find(refusal.reason), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
}

TEST(Program, NamesTheOneRankThatWasGivenOtherOptions) {
  const char* trainer = std::getenv("TUTTI_TRAINER");
  const char* mpiexec = std::getenv("TUTTI_MPIEXEC");
  const Words start{mpiexec, "-n", "2", trainer, "--data", "synthetic:64x1x8x8:2", "--model", "linear"};
  Words lost = start;
  lost.insert(lost.end(), {":", "-n", "1", trainer, "--data", "no-such-data", "--model", "linear"});
  const ChildResult result = run_child(lost);
  EXPECT_EQ(result.status, 74) << result.err;
  EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
  EXPECT_NE(result.err.find("rank 2 on "), std::string::npos) << result.err;

  Words other = start;
  other.insert(other.end(), {":", "-n", "1", trainer, "--data", "synthetic:80x1x8x8:2", "--model", "linear"});
  const ChildResult different = run_child(other);
  EXPECT_EQ(different.status, 65) << different.err;
  EXPECT_NE(different.err.find("rank 2 sees other training data"), std::string::npos) << different.err;
}

TEST(Program, EndsTheWholeJobWithOneMessageWhenARankThrows) {
  const ChildResult result =
      run_child({std::getenv("TUTTI_MPIEXEC"), "-n", "3", std::getenv("TUTTI_FAILING_RANK"), "1"});
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(count(result.err, "trainer: "), 1) << result.err;
  EXPECT_NE(result.err.find("trainer: rank 1 on "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("sample 300 went up in smoke"), std::string::npos) << result.err;
}

TEST(Program, StopsWithItsOwnStatusWhenTheLossIsNoLongerFinite) {
  const TemporaryFolder folder;
  const ChildResult result = run_trainer(2, quick({"--lr", "1e30", "--out", folder.path()}));
  EXPECT_EQ(result.status, 88) << result.err;
  EXPECT_EQ(count(result.err, "no longer a finite number"), 1) << result.err;
  EXPECT_NE(read_text(folder.path() + "/exit.json").find("\"status\":88"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
