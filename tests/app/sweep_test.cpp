// trainer sweep as users start it: every combination a row of its own, equal to the training that it stands for.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using test::ChildResult;
using test::count;
using test::read_text;
using test::run_trainer;
using test::Words;
using test::words_of;
using Json = nlohmann::json;

constexpr const char* kSmall = "--data synthetic:500x1x8x8:4 --validation-ratio 0.2 --model mlp --threads 1 ";

struct Swept {
  ChildResult run;
  Json json;

  const Json& row(std::size_t number) const { return json.at("rows").at(number); }
};

Swept sweep(int ranks, const std::string& options) {
  const ScratchFolder folder;
  const Words words = words_of("sweep " + options + " --json " + folder.file("s.json"));
  Swept swept{.run = run_trainer(ranks, words), .json = {}};
  EXPECT_EQ(swept.run.status, 0) << swept.run.err;
  if (swept.run.status == 0) swept.json = Json::parse(read_text(folder.file("s.json")));
  return swept;
}

// Of a plain training.
std::string digest_of(int ranks, const std::string& options) {
  const ChildResult run = run_trainer(ranks, words_of(options));
  EXPECT_EQ(run.status, 0) << run.err;
  return test::last_word(run.err, ", weights ");
}

std::string refusal_of(int ranks, const std::string& options) {
  const ChildResult run = run_trainer(ranks, words_of("sweep " + options));
  EXPECT_EQ(run.status, 64) << options << run.out << run.err;
  EXPECT_EQ(count(run.out, "images/s"), 0) << "trained first: " << run.out;
  return run.err;
}

class Sweep : public testing::TestWithParam<int> {};

TEST_P(Sweep, GivesEveryCombinationTheWeightsOfItsOwnTraining) {
  const int ranks = GetParam();
  const std::string counts = ranks == 1 ? "1" : ranks == 2 ? "1,2" : "1,2,4";
  const Swept swept =
      sweep(ranks, std::string(kSmall) + "--epochs 2 --batch-size 40,50 --exchange ring,exact --ranks " + counts);
  const Json& rows = swept.json.at("rows");
  ASSERT_EQ(rows.size(), ranks == 1 ? 4U : ranks == 2 ? 8U : 12U);
  for (const Json& row : rows) {
    const Json& options = row.at("options");
    const std::string digest = row.at("digest");
    EXPECT_EQ(row.at("state"), "trained");
    EXPECT_EQ(
        digest_of(row.at("ranks"), std::string(kSmall) + "--epochs 2 --batch-size " + options.at("batch-size").dump() +
                                       " --exchange " + options.at("exchange").get<std::string>()),
        digest)
        << row;
    EXPECT_GE(count(swept.run.out, digest), 1) << swept.run.out;
    EXPECT_EQ(row.at("epochs").size(), 2U);
    EXPECT_TRUE(row.at("test_acc").is_number());
  }
}

INSTANTIATE_TEST_SUITE_P(OnSoManyRanks, Sweep, testing::Values(1, 2, 4));

TEST(SweepRows, OfOneBatchInPartsAreTheSameOnAnyRanks) {
  const Swept swept = sweep(4, std::string(kSmall) + "--parts 4 --steps 6 --ranks 1,2,4 --momentum 0,0.9");
  std::set<std::string> digests;
  for (const Json& row : swept.json.at("rows")) digests.insert(row.at("digest").get<std::string>());
  EXPECT_EQ(digests.size(), 2U) << swept.run.out;
  EXPECT_EQ(swept.json.at("speed_up_by"), "ranks");
  for (const std::size_t row : {0U, 3U}) {
    EXPECT_EQ(swept.row(row).at("speed_up"), 1.0);
    for (const std::size_t other : {row + 1, row + 2}) EXPECT_EQ(swept.row(other).at("speed_up_over_row"), row);
  }
  EXPECT_EQ(swept.row(5).at("step"), 6);
}

TEST(SweepRows, WalkListsTogetherAndScaleTheRateWithTheBatch) {
  const Swept swept = sweep(
      2, std::string(kSmall) + "--ranks 1,2,2 --batch-size 20,40,60 --together ranks,batch-size --lr 0.1 --scale-lr");
  ASSERT_EQ(swept.json.at("rows").size(), 3U);
  EXPECT_EQ(swept.json.at("sweep"), Json({"batch-size", "lr", "ranks"}));
  std::vector<std::string> rates;
  for (const Json& row : swept.json.at("rows")) rates.push_back(row.at("options").at("lr").dump());
  EXPECT_EQ(rates, (std::vector<std::string>{"0.1", "0.2", "0.3"}));
  EXPECT_EQ(swept.row(2).at("digest"), digest_of(2, std::string(kSmall) + "--epochs 1 --batch-size 60 --lr 0.3"));
  EXPECT_EQ(swept.row(2).at("speed_up_over_row"), 0);
}

TEST(SweepRows, LeaveOutWhatCannotBeWithAWordWhy) {
  const Swept swept = sweep(4, std::string(kSmall) + "--steps 3 --ranks 1,2,4 --parts 2,4");
  EXPECT_EQ(count(swept.run.out, "left out: 4 ranks cannot share 2 parts"), 1) << swept.run.out;
  EXPECT_EQ(count(swept.run.out, "1 of 6 combinations left out, 0 failed"), 1) << swept.run.out;
  EXPECT_EQ(swept.row(2).at("state"), "left out");
  EXPECT_NE(swept.row(2).at("reason").get<std::string>().find("2 parts"), std::string::npos);
  EXPECT_EQ(swept.row(5).at("state"), "trained");

  const Swept words = sweep(1, std::string(kSmall) + "--steps 3 --optimizer sgd,adamw --momentum 0,0.9");
  EXPECT_EQ(count(words.run.out, "left out: --momentum 0.9 belongs to sgd and lars"), 1) << words.run.out;
}

// One that fails on its way leaves no rank and no row behind.
TEST(SweepRows, OutliveACombinationThatFails) {
  for (const int ranks : {1, 2, 4}) {
    const std::string rest = std::string(kSmall) + "--steps 8 --batch-size 20 ";
    const Swept swept = sweep(ranks, rest + "--lr 1e36,0.05,1e38,0.01");
    ASSERT_EQ(swept.json.at("rows").size(), 4U);
    EXPECT_EQ(swept.row(0).at("state"), "failed") << swept.run.out;
    EXPECT_NE(swept.row(0).at("reason").get<std::string>().find("finite"), std::string::npos) << swept.row(0);
    EXPECT_FALSE(swept.row(0).contains("digest"));
    EXPECT_EQ(swept.row(2).at("state"), "failed") << swept.run.out;
    EXPECT_EQ(swept.row(1).at("digest"), digest_of(ranks, rest + "--lr 0.05"));
    EXPECT_EQ(swept.row(3).at("digest"), digest_of(ranks, rest + "--lr 0.01"));
    EXPECT_EQ(swept.row(3).at("speed_up_over_row"), 1);
    EXPECT_EQ(count(swept.run.out, "0 of 4 combinations left out, 2 failed"), 1) << swept.run.out;
  }
}

TEST(SweepRows, ThatAllFailEndWithTheFirstOnesStatus) {
  const ScratchFolder folder;
  const ChildResult run = run_trainer(
      4,
      words_of("sweep " + std::string(kSmall) + "--steps 8 --ranks 2 --lr 1e36,1e38 --json " + folder.file("s.json")));
  EXPECT_EQ(run.status, 88) << run.err;
  EXPECT_EQ(count(run.err, "no combination could be trained; the first: "), 1) << run.err;
  EXPECT_EQ(Json::parse(read_text(folder.file("s.json"))).at("rows").at(1).at("state"), "failed");
}

TEST(SweepRows, TakeWhatIsForAllFromAFileAndKeepNothing) {
  const ScratchFolder folder;
  const std::string config = folder.file("run.toml");
  std::ofstream(config) << "data = \"synthetic:500x1x8x8:4\"\nmodel = \"mlp\"\nthreads = 1\nsteps = 3\nlr = 0.02\n"
                        << "checkpoint-every = \"1\"\nout = \"" << folder.file("out") << "\"\n";
  const Swept swept = sweep(1, "--config " + config + " --seed 0,1");
  EXPECT_EQ(swept.row(1).at("digest"),
            digest_of(1, "--data synthetic:500x1x8x8:4 --model mlp --threads 1 --lr 0.02 --steps 3 --seed 1"));
  EXPECT_EQ(folder.entries(), 1U) << "something was kept";
}

TEST(SweepRows, TellASpeedUpOnlyWhereSpeedIsWhatTheyDifferIn) {
  const Swept rates = sweep(1, std::string(kSmall) + "--steps 3 --lr 0.1,0.2");
  EXPECT_EQ(count(rates.run.out, "speed-up"), 0) << rates.run.out;
  const Swept batches = sweep(1, std::string(kSmall) + "--steps 3 --batch-size 20,40");
  EXPECT_EQ(count(batches.run.out, "speed-up"), 2) << batches.run.out;
}

TEST(SweepRows, KeepTheirColumnsWhereALossIsHuge) {
  const Swept swept = sweep(1,
                            "--data synthetic:500x1x8x8:4 --model linear --threads 1 --steps 8 --batch-size 20 "
                            "--momentum 0 --lr 0.05,1e5");
  ASSERT_GT(swept.row(1).at("train_loss"), 1e5) << swept.run.out;
  const std::string& out = swept.run.out;
  const auto end_of = [&](std::size_t row) { return out.find(swept.row(row).at("digest").get<std::string>()); };
  const auto column = [&](std::size_t at) { return at - out.rfind('\n', at); };
  EXPECT_EQ(column(end_of(0)), column(end_of(1))) << out;
}

TEST(SweepRefuses, WrongWordsBeforeItTrainsAny) {
  EXPECT_NE(refusal_of(2, std::string(kSmall) + "--exchange ring,rign").find("--exchange rign"), std::string::npos);
  EXPECT_NE(refusal_of(2, std::string(kSmall) + "--ranks 1,3").find("this launch has 2"), std::string::npos);
}

TEST(SweepRefuses, DataThatAreNotThereAndAFileThatCannotBeWrittenAtOnce) {
  const ChildResult data = run_trainer(2, words_of("sweep --data nowhere --lr 0.1,0.2"));
  EXPECT_NE(data.status, 0);
  EXPECT_EQ(data.out, "");
  EXPECT_NE(data.err.find("nowhere"), std::string::npos) << data.err;
  const ChildResult file = run_trainer(1, words_of("sweep " + std::string(kSmall) + "--json /proc/none/s.json"));
  EXPECT_EQ(file.status, 73) << file.err;
  EXPECT_EQ(file.out, "");
}

TEST(SweepRefuses, RanksThatWereGivenOtherLists) {
  const ChildResult run =
      test::run_script(2, "\"$T\" sweep " + std::string(kSmall) + "--steps 2 --lr 0.1,0.$((2 + RANK))");
  EXPECT_EQ(run.status, 65) << run.err;
  EXPECT_NE(run.err.find("lists to sweep"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace tutti
