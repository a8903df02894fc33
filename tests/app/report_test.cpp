// trainer report on runs of the trainer's own, and the logs that a run keeps besides metrics.jsonl.

#include "support/child_process.hpp"
#include "support/markup.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace tutti::test {
namespace {

using Json = nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
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

// One run for all tests that only look at it.
class Report : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<ScratchFolder>();
    const ChildResult run = run_trainer(2, with(kRun, {"--out", out(), "--quiet"}));
    ASSERT_EQ(run.status, 0) << run.err;
  }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::string out() { return folder_->file("run"); }
  static ChildResult report(const Words& more = {}, int ranks = 0) {
    return run_trainer(ranks, with({"report", out()}, more));
  }
  static MarkupNode page(const std::string& path) { return read_markup(read_text(path)); }

  static std::unique_ptr<ScratchFolder> folder_;
};

std::unique_ptr<ScratchFolder> Report::folder_;

TEST_F(Report, ShowsTheFiguresOfMetricsAndOfEval) {
  const ChildResult told = report();
  ASSERT_EQ(told.status, 0) << told.err;
  EXPECT_THAT(told.out, HasSubstr(out() + "/report.html: After 3 epochs, mlp names "));
  const MarkupNode root = page(out() + "/report.html");
  const auto epochs = with_value(records_in(out() + "/metrics.jsonl"), "event", "epoch");
  const auto rows = root.by_id("curves").all("table")[0]->rows();
  ASSERT_EQ(epochs.size(), 3u);
  ASSERT_EQ(rows.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Json& epoch = epochs[i];
    const auto decimals = [&](const char* name) { return fmt::format("{:.4f}", epoch.at(name).get<double>()); };
    EXPECT_THAT(rows[i + 1],
                ElementsAre(fmt::format("{}", i + 1), fmt::format("{}", 6 * (i + 1)), decimals("train_loss"),
                            decimals("train_acc"), decimals("test_loss"), decimals("test_acc"), testing::_, testing::_,
                            "0.05", epoch.at("digest").get<std::string>()));
  }
  const std::string json = folder_->file("eval.json");
  ASSERT_EQ(run_trainer(words_of("eval --quiet --checkpoint " + out() + " --json " + json)).status, 0);
  const Json eval = Json::parse(read_text(json));
  EXPECT_THAT(root.by_id("classes").text, HasSubstr(fmt::format("mean loss {:.4f}", eval.at("loss").get<double>())));
  const auto matrix = root.by_id("classes").all("table")[0]->rows();
  ASSERT_EQ(matrix.size(), 5u);
  for (std::size_t label = 0; label < 4; ++label) {
    for (std::size_t predicted = 0; predicted < 4; ++predicted) {
      const std::string cell = matrix[label + 1][predicted + 1];
      EXPECT_EQ(cell == "·" ? 0 : std::stoi(cell), eval.at("confusion")[label][predicted]);
    }
  }
}

TEST_F(Report, IsTheSamePageOnAnyNumberOfRanks) {
  const std::string one = folder_->file("one.html"), three = folder_->file("three.html");
  ASSERT_EQ(report({"-o", one}).status, 0);
  const ChildResult of_three = report({"--output", three}, 3);
  ASSERT_EQ(of_three.status, 0) << of_three.err;
  EXPECT_EQ(read_text(one), read_text(three));
}

TEST_F(Report, ShowsMistakesUnlessTheyAreNotWanted) {
  const std::string path = folder_->file("page.html");
  ASSERT_EQ(report({"-o", path}).status, 0);
  const MarkupNode root = page(path);
  const auto images = root.by_id("mistakes").all("img");
  ASSERT_FALSE(images.empty());
  EXPECT_THAT(images[0]->attribute("src"), testing::StartsWith("data:image/png;base64,iVBORw0KGgo"));
  ASSERT_EQ(report({"-o", path, "--no-images"}).status, 0);
  EXPECT_TRUE(page(path).all("img").empty());
  EXPECT_FALSE(page(path).by_id("classes").all("table").empty());
}

TEST_F(Report, TellsInItsPlaceOfACheckpointOrDataThatAreMissing) {
  const std::string path = folder_->file("page.html");
  const ChildResult no_data = report({"-o", path, "--data", "/nowhere/data"}, 2);
  EXPECT_EQ(no_data.status, 0) << no_data.err;
  EXPECT_THAT(no_data.err, HasSubstr("without classes and mistakes. Not known here: "));
  EXPECT_THAT(page(path).by_id("classes").text, HasSubstr("/nowhere/data"));
  EXPECT_EQ(page(path).by_id("curves").all("table")[0]->rows().size(), 4u);

  const std::string copy = folder_->file("records-alone");
  std::filesystem::create_directory(copy);
  std::filesystem::copy_file(out() + "/metrics.jsonl", copy + "/metrics.jsonl");
  EXPECT_EQ(run_trainer({"report", copy}).status, 0);
  EXPECT_THAT(page(copy + "/report.html").by_id("mistakes").text, HasSubstr("holds no checkpoints"));
}

TEST_F(Report, RefusesWhatIsNoRunAndSaysWhatItCannotWrite) {
  const ChildResult no_run = run_trainer({"report", folder_->path()});
  EXPECT_EQ(no_run.status, 65);
  EXPECT_THAT(no_run.err, HasSubstr("holds no metrics.jsonl: give the folder that a training had as --out"));
  EXPECT_EQ(run_trainer({"report"}).status, 64);
  const ChildResult unwritten = report({"-o", "/proc/page.html"});
  EXPECT_EQ(unwritten.status, 73);
  EXPECT_THAT(unwritten.err, HasSubstr("cannot save '/proc/page.html'"));
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
