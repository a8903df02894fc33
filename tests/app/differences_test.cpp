#include "differences.hpp"

#include "tutti/base/error.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "support/overwrite.hpp"
#include "support/reports.hpp"
#include "support/scratch_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace tutti {
namespace {

using ::testing::Not;

MetricsRecords records(const std::string& text) {
  const ScratchFolder folder;
  overwrite(folder.file("metrics.jsonl"), std::as_bytes(std::span(text)));
  return read_metrics(folder.file("metrics.jsonl"));
}

std::string digest_line(int step, const std::string& gradients, const std::string& weights) {
  return "{\"event\":\"digest\",\"step\":" + std::to_string(step) + ",\"weights\":\"" + weights +
         "\",\"gradients\":\"" + gradients + "\",\"optimizer\":\"00\"}\n";
}

const std::string kRun = "{\"event\":\"run\",\"command_line\":[\"trainer\"],\"ranks\":4}\n";

TEST(Differences, NameTheFirstStepAndWhatDiffersInIt) {
  const auto a = records(kRun + digest_line(1, "aa", "bb") + digest_line(2, "cc", "dd") + digest_line(3, "ee", "ff"));
  const auto b = records(kRun + digest_line(1, "aa", "bb") + digest_line(2, "c0", "d0") + digest_line(3, "e0", "f0"));
  const Comparison finding = compare_metrics(a, b);
  EXPECT_TRUE(finding.compared && finding.differ);
  EXPECT_THAT(finding.text, mentions("3 records compared, of steps 1 to 3\nstep 2 is the first to differ:\n"
                                     "  gradients     cc | c0\n  weights       dd | d0\n"));
  EXPECT_THAT(finding.text, Not(mentions("optimizer")));
  EXPECT_FALSE(compare_metrics(a, a).differ);
}

TEST(Differences, OfAResumedRunUseItsLastRecords) {
  const auto a = records(kRun + digest_line(1, "aa", "bb") + digest_line(2, "xx", "yy") +
                         "{\"event\":\"run\",\"command_line\":[],\"ranks\":3}\n" + digest_line(2, "cc", "dd"));
  const Comparison finding = compare_metrics(a, records(kRun + digest_line(2, "cc", "dd")));
  EXPECT_TRUE(finding.compared && !finding.differ) << finding.text;
  EXPECT_THAT(finding.text, mentions("ranks         3 | 4\n"));
}

TEST(Differences, OfRunsOfDifferentLengthReportWhereEachEnds) {
  const auto a = records(kRun + digest_line(1, "aa", "bb") + digest_line(2, "cc", "dd"));
  const auto b = records(kRun + digest_line(1, "aa", "bb"));
  EXPECT_THAT(compare_metrics(a, b).text, mentions("the last step with a record is 2 in A and 1 in B\n"));
  EXPECT_THAT(compare_metrics(a, a).text, Not(mentions("last step")));
}

TEST(Differences, IgnoreRecordsNestedTooDeepForTheStack) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const auto a = records("{\"event\":\"run\",\"device\":" + deep + ",\"ranks\":[[4]]}\n");
  EXPECT_EQ(a.run.at("ranks"), "[[4]]");
}

TEST(Differences, SkipDamagedLinesAndReportThem) {
  const auto a =
      records(kRun + digest_line(1, "aa", "bb") + "{\"event\":\"dig" + kRun + "[1]\n{\"event\":\"digest\"}\n" +
              digest_line(2, "cc", "dd") + "{\"event\":\"digest\",\"step\":3,\"wei");
  const Comparison finding = compare_metrics(a, records(digest_line(2, "cc", "dd")));
  EXPECT_TRUE(finding.compared && !finding.differ) << finding.text;
  EXPECT_THAT(finding.text, mentions("A has 4 damaged lines"));
  EXPECT_THROW(records("no\nrecord\n"), Error);
}

TEST(Differences, OfEpochsAreTakenWhereThereAreNoDigests) {
  const auto epoch = [](const char* accuracy, const char* digest) {
    return records(std::string("{\"event\":\"epoch\",\"epoch\":1,\"step\":5,\"train_loss\":0.5,\"test_acc\":") +
                   accuracy + ",\"seconds\":" + accuracy + ",\"digest\":\"" + digest + "\"}\n");
  };
  EXPECT_FALSE(compare_metrics(epoch("0.75", "aa"), epoch("null", "aa")).differ);
  const auto loss = [](const char* text) {
    return records(std::string("{\"event\":\"epoch\",\"step\":5,\"train_loss\":") + text + "}\n");
  };
  EXPECT_TRUE(compare_metrics(loss("0.5"), loss("null")).differ) << "a loss that is no number";
  const Comparison finding = compare_metrics(epoch("0.75", "aa"), epoch("0.5", "bb"));
  EXPECT_TRUE(finding.differ);
  EXPECT_THAT(finding.text, mentions("  weights       aa | bb\n  test_acc      0.75 | 0.5\n"));
}

TEST(Differences, NeedAStepInCommon) {
  const Comparison finding = compare_metrics(records(digest_line(1, "aa", "bb")), records(digest_line(2, "aa", "bb")));
  EXPECT_FALSE(finding.compared);
  EXPECT_THAT(finding.text, mentions("1 to 1 | 2 to 2"));
}

// Compares two checkpoints, of which `change` has changed the second.
Comparison compare_with(const std::function<void(TrainState&)>& change) {
  const ScratchFolder folder;
  TrainState state;
  state.parameters = {{"dense/weight", Shape{2, 3}, {1, 2, 3, 4, 5, 6}}, {"dense/bias", Shape{2}, {0, 0}}};
  state.optimizer = {{"velocity/dense/bias", Shape{2}, {1, 2}}};
  state.configuration = "lr = 0.5\n";
  state.versions = "1";
  state.progress.step = 7;
  const CheckpointStore a(folder.file("a"));
  const CheckpointStore b(folder.file("b"));
  a.save(state);
  change(state);
  b.save(state);
  return compare_checkpoints(a.path_of(a.steps().at(0)), b.path_of(b.steps().at(0)));
}

TEST(Differences, OfCheckpointsNameTensorAndElement) {
  const Comparison finding = compare_with([](TrainState& state) {
    state.parameters[0].values[4] = 5.5f;
    state.parameters[0].values[5] = 5;
    state.optimizer[0].values[0] = -1;
  });
  EXPECT_TRUE(finding.differ);
  EXPECT_THAT(finding.text, mentions("/parameters: 1 of 2 tensors differ, first dense/weight:\n"
                                     "  [1, 1]        5 (0x40a00000) | 5.5 (0x40b00000)\n"
                                     "  2 of 6 elements differ, by 1 at most\n",
                                     "/optimizer: 1 of 1 tensors differ"));
}

TEST(Differences, OfCheckpointsAreBitwise) {
  EXPECT_TRUE(compare_with([](TrainState& state) { state.parameters[1].values[1] = -0.0f; }).differ);
}

TEST(Differences, OfCheckpointsCountProgressAndMissingTensorsButNotTimesAndOptions) {
  EXPECT_THAT(compare_with([](TrainState& state) { state.progress.step = 8; }).text, mentions("progress"));
  EXPECT_THAT(compare_with([](TrainState& state) { state.progress.epoch_sums.samples = 8; }).text,
              mentions("0 correct of 8"));
  EXPECT_THAT(compare_with([](TrainState& state) { state.progress.learning_rate = 0.5; }).text, mentions("0 | 0.5"));
  EXPECT_THAT(compare_with([](TrainState& state) { state.progress.carried_over = 5; }).text, mentions("5 carried"));
  EXPECT_THAT(compare_with([](TrainState& state) { state.optimizer.clear(); }).text, mentions("only A has it"));
  EXPECT_THAT(compare_with([](TrainState& state) { state.parameters[1].shape = Shape{1, 2}; }).text, mentions("1x2"));
  const Comparison equal = compare_with([](TrainState& state) {
    state.progress.epoch_seconds = 3;
    state.progress.planned_steps = 9;
    state.progress.best = {.step = 7, .correct = 3, .samples = 4};
    state.configuration = "lr = 0.25\nout = \"elsewhere\"\n";
    state.model = "name = \"other\"\n";
    state.versions = "2";
    state.data_digest = 1;
  });
  EXPECT_FALSE(equal.differ);
  for (const char* expected : {"--lr          0.5 | 0.25\n", "networks differ", "versions      1 | 2", "data digest",
                               "0 of 0 after step -1 | 3 of 4 after step 7"}) {
    EXPECT_THAT(equal.text, mentions(expected));
  }
  EXPECT_THAT(equal.text, Not(mentions("--out")));
}

}  // namespace
}  // namespace tutti
