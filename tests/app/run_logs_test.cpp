// The logs that a run keeps besides metrics.jsonl.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

const Words kRun =
    words_of("--data synthetic:96x1x6x6:4 --model mlp --batch-size 16 --epochs 3 --momentum 0 --threads 1 --parts 3");

std::vector<Json> records_in(const std::string& path, const std::string& token = "") {
  std::ifstream file(path);
  std::vector<Json> records;
  for (std::string line; std::getline(file, line);) records.push_back(Json::parse(line.substr(token.size())));
  return records;
}

std::vector<Json> with_value(const std::vector<Json>& records, const std::string& key, const std::string& value) {
  std::vector<Json> chosen;
  for (const Json& record : records) {
    if (record.at(key) == value) chosen.push_back(record);
  }
  return chosen;
}

TEST(RunLogs, GoOnWithTheRun) {
  const ScratchFolder folder;
  const std::string out = folder.file("run"), log = folder.file("mlperf.log"), board = folder.file("board/of/run");
  const Words logged = with(kRun, {"--out", out, "--mlperf-log", log, "--tensorboard", board, "--quiet"});
  ASSERT_EQ(run_trainer(2, with(logged, {"--steps", "8"})).status, 0);
  const ChildResult resumed = run_trainer(3, with(logged, {"--steps", "0", "--resume"}));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  const auto lines = records_in(log, ":::MLLOG ");
  EXPECT_EQ(with_value(lines, "key", "run_stop").size(), 2u);
  const auto starts = with_value(lines, "key", "epoch_start");
  ASSERT_EQ(starts.size(), 4u) << "the second epoch in two stretches";
  EXPECT_EQ(starts[2].at("metadata").at("epoch_num"), 2);
  const auto accuracies = with_value(lines, "key", "eval_accuracy");
  const auto epochs = with_value(records_in(out + "/metrics.jsonl"), "event", "epoch");
  ASSERT_EQ(accuracies.size(), epochs.size());
  for (std::size_t i = 0; i < epochs.size(); ++i) EXPECT_EQ(accuracies[i].at("value"), epochs[i].at("test_acc"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(board), {}), 2) << "a file of events for each start";
}

TEST(RunLogs, AreRefusedBeforeTrainingWhereTheyCannotBeWritten) {
  for (const auto& [option, path] :
       {std::pair("--mlperf-log", "/proc/nowhere/log"), {"--tensorboard", "/proc/nowhere"}}) {
    const ChildResult run = run_trainer(2, with(kRun, {option, path}));
    EXPECT_EQ(run.status, 73) << run.err;
    EXPECT_EQ(count(run.out, "epoch"), 0);
    EXPECT_THAT(run.err, HasSubstr(path));
  }
  const ScratchFolder folder;
  const ChildResult check = run_trainer(words_of("check --tensorboard " + folder.file("a/b")));
  EXPECT_THAT(check.out, Not(HasSubstr("tensorboard")));
  EXPECT_EQ(folder.entries(), 0u) << "a check leaves nothing behind";
}

}  // namespace
}  // namespace tutti::test
