// All commands start and end alike: their ranks run the same command, and they handle closed descriptors and output
// that cannot be written.

#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

constexpr int kNotSaved = 73;

const char* const kTraining = "train --data synthetic:512x1x12x12:4 --model mlp --epochs 2 --batch-size 64";

// Runs a command in a shell, with a redirection.
ChildResult run_redirected(const std::string& options, const std::string& redirection) {
  return run_child({"sh", "-c", fmt::format("\"$0\" {} {}", options, redirection), std::getenv("TUTTI_TRAINER")});
}

class Output : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_THAT(run_redirected(fmt::format("{} --out {}", kTraining, out_), ""), ends(0)); }
  // The commands that print results.
  std::vector<std::string> commands() const {
    return {"--help",
            "--version",
            "--man-page",
            "--completion bash",
            "help",
            "data --help",
            "data info synthetic:64x1x8x8:4",
            fmt::format("{} --dry-run", kTraining),
            fmt::format("check {}", kTraining + 6),
            "eval --checkpoint " + out_,
            "predict --checkpoint " + out_,
            "predict --csv - --checkpoint " + out_,
            "inspect " + out_,
            fmt::format("diff {0} {0}", out_),
            "report " + out_,
            "bench step --data synthetic:64x1x8x8:4 --model mlp --warmup-steps 1 --timed-steps 2"};
  }

  ScratchFolder folder_;
  std::string out_ = folder_.file("run");
};

TEST_F(Output, ThatCannotBeWrittenEndsEveryCommandWith73) {
  for (const std::string& command : commands()) {
    const ChildResult full = run_redirected(command, "> /dev/full");
    EXPECT_EQ(full.status, kNotSaved) << command << "\n" << full.err;
    EXPECT_EQ(count(full.err, "trainer: cannot write to stdout: No space left on device"), 1) << command << full.err;
  }
  for (const std::string command : {"--version", "data info synthetic:64x1x8x8:4"}) {
    EXPECT_EQ(run_redirected(command, ">&-").status, kNotSaved) << command;
    EXPECT_EQ(run_redirected(command, "<&- 2>&-").status, 0) << command;
  }
}

TEST_F(Output, OfARunThatCannotBeWrittenCostsNoWork) {
  const std::string out = folder_.file("other");
  const ChildResult run = run_redirected(fmt::format("{} --out {}", kTraining, out), "> /dev/full");
  EXPECT_EQ(run.status, kNotSaved) << run.err;
  EXPECT_EQ(count(run.err, "training continues, and ends with status 73"), 1) << run.err;
  EXPECT_EQ(run_trainer({"diff", out, out_}).status, 0);
}

// Simulates a closed terminal.
TEST_F(Output, ToStderrThatCannotBeWrittenEndsNothing) {
  const std::string out = folder_.file("unseen");
  EXPECT_THAT(run_redirected(fmt::format("{} --out {} --progress always", kTraining, out), "2> /dev/full"), ends(0));
  EXPECT_EQ(run_trainer({"diff", out, out_}).status, 0);
  EXPECT_EQ(run_redirected(fmt::format("predict --checkpoint {} --csv -", out), "2> /dev/full").status, 0);
}

TEST_F(Output, IsNeverWrittenIntoFilesWhereDescriptorsAreClosed) {
  const std::string out = folder_.file("closed");
  run_redirected(fmt::format("{} --out {}", kTraining, out), "<&- >&- 2>&-");
  EXPECT_TRUE(read_text(out + "/lock").starts_with("host "));
  EXPECT_EQ(read_text(out + "/lock").find("epoch"), std::string::npos);
  const std::string metrics = read_text(out + "/metrics.jsonl");
  EXPECT_EQ(count(metrics, "\n"), count(metrics, "}\n")) << metrics;
  EXPECT_EQ(count(metrics, "\n{"), count(metrics, "\n") - 1) << metrics;
}

// A shell starts the ranks, since mpirun of Open MPI 5.0.7 crashes when two programs are separated by a colon.
TEST(Ranks, AgreeOnTheirCommandFirst) {
  struct Pair {
    const char* first;
    const char* last;
    const char* message;
  };
  for (const auto& [first, last, message] : std::vector<Pair>{
           {kTraining, "eval --checkpoint nowhere", "was started with eval, and rank 0 with train:"},
           {kTraining, "--help", "was started with an option that only prints, such as --help, and rank 0"},
           {"--version", kTraining, "was started with train, and rank 0 with an option that only prints"},
           {"data info glyphs", "tour", "was started with tour, and rank 0 with data info:"}}) {
    const ChildResult run = run_script(2, fmt::format("[ $RANK = 0 ] && exec \"$T\" {}; exec \"$T\" {}", first, last));
    EXPECT_EQ(run.status, 65) << first << last << run.err;
    EXPECT_EQ(count(run.err, "trainer: "), 1) << run.err;
    EXPECT_THAT(run.err, mentions(message));
    EXPECT_EQ(run.out, "");
  }
}

TEST(Folder, OfAnotherRunWithoutACheckpointIsNotReusedSilently) {
  const ScratchFolder folder;
  const std::string out = folder.file("run");
  const ChildResult killed =
      run_redirected(fmt::format("{} --out {} --rehearse kill:rank=0,step=2", kTraining, out), "");
  EXPECT_NE(killed.status, 0);

  const ChildResult other = run_redirected(fmt::format("{} --out {} --model linear", kTraining, out), "");
  EXPECT_EQ(other.status, 0) << other.err;
  const std::string expected = fmt::format(
      "--out {} has the records of a run of mlp on synthetic:512x1x12x12:4 that saved no checkpoint, and this "
      "run of linear on synthetic:512x1x12x12:4 adds its own to the same metrics.jsonl: ",
      out);
  EXPECT_THAT(other.err, mentions(expected));
  EXPECT_EQ(run_redirected(fmt::format("{} --out {}/again", kTraining, out), "").err.find(" has the records of"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::test
