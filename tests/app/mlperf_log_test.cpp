// The lines that MLPerf's readers take, one by one.

#include "mlperf_log.hpp"

#include "tutti/storage/whole_file.hpp"

#include "support/scratch_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;

const std::string kToken = ":::MLLOG ";
const MlperfFacts kFacts{.seed = 7,
                         .batch_size = 128,
                         .train_samples = 20000,
                         .test_samples = 4000,
                         .optimizer = "lars",
                         .learning_rate = 0.1,
                         .warmup_epochs = 2,
                         .momentum = 0.9,
                         .weight_decay = 1e-4};

std::vector<Json> lines_in(const std::string& path) {
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) {
    EXPECT_EQ(line.substr(0, kToken.size()), kToken);
    lines.push_back(Json::parse(line.substr(kToken.size())));
  }
  return lines;
}

std::vector<std::string> keys_of(const std::vector<Json>& lines) {
  std::vector<std::string> keys;
  for (const Json& line : lines) keys.push_back(line.at("key"));
  return keys;
}

const Json& line_of(const std::vector<Json>& lines, const std::string& key) {
  for (const Json& line : lines) {
    if (line.at("key") == key) return line;
  }
  throw std::runtime_error("no line of " + key);
}

EpochReport epoch(std::int64_t number) {
  return {.epoch = number,
          .epochs = 2,
          .step = 10 * number,
          .train = {.loss_steps = 1 << 24, .correct = 1, .samples = 2},
          .test = LossSums{.loss_steps = 1 << 24, .correct = 3, .samples = 4},
          .seconds = 4,
          .test_seconds = 1.5};
}

void play(MlperfLog& log, std::int64_t number, bool is_tested = true) {
  for (std::int64_t step = 1; step <= 3; ++step) log.on_step({.epoch = number, .epochs = 2, .step_in_epoch = step});
  EpochReport report = epoch(number);
  if (!is_tested) report.test.reset();
  log.on_epoch(report);
  log.on_epoch_left({.epoch = number, .step = 10 * number});
}

TEST(MlperfLog, TellsARunFromItsStartToItsEnd) {
  const ScratchFolder folder;
  const std::string path = folder.file("log");
  {
    MlperfLog log(path, kFacts);
    log.on_begin({});
    play(log, 1);
    play(log, 2, false);
    log.on_end(RunEnd::planned);
  }
  const auto lines = lines_in(path);
  EXPECT_THAT(keys_of(lines), ElementsAre("init_start", "seed", "global_batch_size", "train_samples", "eval_samples",
                                          "opt_name", "opt_base_learning_rate", "opt_learning_rate_warmup_epochs",
                                          "opt_momentum", "opt_weight_decay", "init_stop", "run_start", "epoch_start",
                                          "epoch_stop", "eval_start", "eval_stop", "eval_accuracy", "tracked_stats",
                                          "epoch_start", "epoch_stop", "tracked_stats", "run_stop"));
  for (const Json& line : lines) {
    EXPECT_EQ(line.at("namespace"), "");
    EXPECT_GT(line.at("time_ms"), 1'700'000'000'000);
    EXPECT_TRUE(line.at("metadata").at("lineno").is_number_integer());
    EXPECT_EQ(line.at("metadata").at("file"), "mlperf_log.cpp");
  }
}

TEST(MlperfLog, HoldsValuesWhereReadersLookForThem) {
  const ScratchFolder folder;
  MlperfLog log(folder.file("log"), kFacts);
  log.on_begin({});
  play(log, 1);
  log.on_end(RunEnd::stopped);
  const auto lines = lines_in(folder.file("log"));
  EXPECT_EQ(line_of(lines, "global_batch_size").at("value"), 128);
  EXPECT_EQ(line_of(lines, "global_batch_size").at("event_type"), "POINT_IN_TIME");
  EXPECT_EQ(line_of(lines, "opt_name").at("value"), "lars");
  EXPECT_EQ(line_of(lines, "opt_base_learning_rate").at("value"), 0.1);
  EXPECT_EQ(line_of(lines, "init_start").at("event_type"), "INTERVAL_START");
  EXPECT_EQ(line_of(lines, "run_stop").at("event_type"), "INTERVAL_END");
  EXPECT_EQ(line_of(lines, "run_stop").at("metadata").at("status"), "aborted");
  EXPECT_EQ(line_of(lines, "eval_accuracy").at("value"), 0.75);
  EXPECT_EQ(line_of(lines, "eval_accuracy").at("metadata").at("epoch_num"), 1);
  EXPECT_EQ(line_of(lines, "tracked_stats").at("value").at("throughput"), 0.5);
  EXPECT_EQ(line_of(lines, "tracked_stats").at("metadata").at("step"), 10);
  const std::int64_t eval_start = line_of(lines, "eval_start").at("time_ms");
  const std::int64_t eval_stop = line_of(lines, "eval_stop").at("time_ms");
  EXPECT_EQ(eval_stop - eval_start, 1500);
  EXPECT_EQ(line_of(lines, "epoch_stop").at("time_ms"), eval_start);
}

}  // namespace
}  // namespace tutti
