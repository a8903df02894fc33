// What trainer eval tells and writes of each class.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <string>

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

TEST(EvaluationByClass, HasTheSameFiguresOnAnyRanks) {
  const ScratchFolder folder;
  const auto file = [&](const std::string& name) { return folder.file(name); };
  const std::string run = file("run");
  const ChildResult trained =
      run_trainer({"--steps", "60", "--batch-size", "64", "--threads", "1", "--normalize", "0.1/0.9", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ChildResult plain = run_trainer({"eval", "--checkpoint", run});
  Words told;
  for (const int ranks : {0, 2, 3}) {
    const ChildResult result =
        run_trainer(ranks, {"eval", "--checkpoint", run, "--classes", "--json", file("eval.json")});
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_TRUE(result.out.starts_with(plain.out)) << result.out;
    EXPECT_THAT(result.out, HasSubstr("\nclass  images     acc  taken for\n"));
    told.push_back(result.out + read_text(file("eval.json")));
    EXPECT_EQ(told.back(), told.front()) << ranks << " ranks";
  }
  const auto json = nlohmann::json::parse(read_text(file("eval.json")));
  ASSERT_EQ(json.at("confusion").size(), 10u);
  int images = 0;
  int right = 0;
  for (std::size_t label = 0; label < 10; ++label) {
    const auto& row = json.at("confusion").at(label);
    const auto& own = json.at("classes").at(label);
    int sum = 0;
    for (const auto& count : row) sum += count.get<int>();
    EXPECT_EQ(own.at("class"), std::to_string(label));
    EXPECT_EQ(own.at("images"), sum);
    EXPECT_EQ(own.at("correct"), row.at(label));
    images += sum;
    right += row.at(label).get<int>();
  }
  EXPECT_EQ(json.at("images"), images);
  EXPECT_EQ(json.at("accuracy").get<double>(), static_cast<double>(right) / images);
}

// A step of a rate that leaves weights and losses of 1e10 and more.
TEST(Evaluation, CountsLargeLossesTheSameOnAnyRanks) {
  const ScratchFolder folder;
  const std::string run = folder.file("run");
  const ChildResult trained = run_trainer(
      {"--model", "linear", "--data", "synthetic:1000x1x12x12:4", "--steps", "1", "--lr", "1e12", "--out", run});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ChildResult alone = run_trainer({"eval", "--checkpoint", run, "--on", "train"});
  ASSERT_EQ(alone.status, 0) << alone.err;
  EXPECT_GT(std::stod(alone.out.substr(std::string("train loss ").size())), 1e9) << alone.out;
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(run_trainer(ranks, {"eval", "--checkpoint", run, "--on", "train"}).out, alone.out);
    EXPECT_EQ(run_trainer(ranks, {"predict", "--checkpoint", run, "--on", "train"}).status, 0);
  }
}

TEST(EvaluationByClass, OfManyClassesIsWrittenWithoutZeros) {
  const ScratchFolder folder;
  const auto file = [&](const std::string& name) { return folder.file(name); };
  const ChildResult trained = run_trainer({"--model", "linear", "--data", "synthetic:64x1x4x4:1500", "--steps", "1",
                                           "--checkpoint-every", "1steps", "--out", file("many")});
  ASSERT_EQ(trained.status, 0) << trained.err;
  const ChildResult result =
      run_trainer({"eval", "--checkpoint", file("many"), "--on", "train", "--json", file("eval.json")});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto json = nlohmann::json::parse(read_text(file("eval.json")));
  EXPECT_FALSE(json.contains("confusion"));
  EXPECT_EQ(json.at("classes").size(), 1500u);
  int images = 0;
  for (const auto& entry : json.at("confusion_entries")) {
    EXPECT_GE(json.at("classes").at(entry.at(0).get<std::size_t>()).at("images"), entry.at(2));
    images += entry.at(2).get<int>();
  }
  EXPECT_EQ(images, 64);
}

}  // namespace
}  // namespace tutti::test
