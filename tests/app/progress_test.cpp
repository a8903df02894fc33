#include "support/child_process.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::test {
namespace {

// A run of 16 steps, which takes about a second.
Words two_epochs(const Words& more = {}) {
  return with({"--data", "synthetic:512x1x12x12:4", "--model", "mlp", "--epochs", "2", "--batch-size", "64"}, more);
}

TEST(Progress, PrintsTheLossEveryNSteps) {
  const ChildResult result = run_trainer(2, two_epochs({"--log-every", "5"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count(result.err, "images/s, "), 3) << result.err;
  EXPECT_THAT(result.err, mentions("epoch 2/2, step 15/16, loss "));
  EXPECT_EQ(without_times(result.out), without_times(run_trainer(2, two_epochs()).out));
}

TEST(Progress, DrawsNothingIntoAFile) {
  const ScratchFolder folder;
  const std::string log = folder.path() + "/log";
  const Words words = trainer_words(0, two_epochs({"--progress", "always", "--log-every", "8"}));
  ChildProcess child(words, log);
  EXPECT_EQ(child.wait(60), 0);
  const std::string text = read_text(log);
  EXPECT_EQ(count(text, "sec left\n"), 2) << text;
  for (const char control : {'\r', '\x1b'}) EXPECT_EQ(text.find(control), std::string::npos) << text;
}

TEST(Progress, PrintsTheSharesOfTimeOnceAtTheEnd) {
  const ChildResult result = run_trainer(two_epochs({"--threads", "1", "--in-flight", "2"}));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(count(result.err, "whole run: time "), 1) << result.err;
}

TEST(Progress, WarnsOnceOfALossThatStaysAtThatOfGuessing) {
  const ChildResult stuck = run_trainer(two_epochs({"--lr", "1e-9", "--epochs", "15"}));
  EXPECT_EQ(stuck.status, 0) << stuck.err;
  EXPECT_EQ(count(stuck.err, "warning: after 24 steps the test loss, "), 1) << stuck.err;
  EXPECT_EQ(count(stuck.err, " no better than guessing among 4 classes (1.3863 and 0.2500)"), 1) << stuck.err;
}

}  // namespace
}  // namespace tutti::test
