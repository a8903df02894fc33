// Which trainings a command line's lists make, in which order, and what is refused before any of them.

#include "sweep/sweep_plan.hpp"

#include "tutti/base/error.hpp"

#include "command_line.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Invocation parse(const std::string& text) {
  const test::Words words = test::words_of("trainer sweep " + text);
  std::vector<const char*> pointers;
  for (const std::string& word : words) pointers.push_back(word.c_str());
  return parse_command_line(static_cast<int>(pointers.size()), pointers.data());
}

SweepPlan plan(const std::string& text, int ranks = 4) { return plan_sweep(parse(text), ranks); }

std::string refusal(const std::string& text) {
  try {
    plan(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), ExitStatus::usage) << error.what();
    return error.what();
  }
  return "no error";
}

std::vector<std::string> rows_of(const SweepPlan& plan) {
  std::vector<std::string> rows;
  for (const SweepCase& one : plan.cases) {
    std::string row;
    for (const std::string& value : one.values) row += (row.empty() ? "" : " ") + value;
    rows.push_back(one.cannot.empty() ? row : row + " not");
  }
  return rows;
}

TEST(SweepPlan, CrossesListsWithTheRanksTheFastest) {
  const SweepPlan made = plan("--lr 0.1,0.05 --ranks 1,4 --batch-size 64,32");
  EXPECT_THAT(made.columns, ElementsAre("batch-size", "lr", "ranks"));
  EXPECT_THAT(rows_of(made), ElementsAre("64 0.1 1", "64 0.1 4", "64 0.05 1", "64 0.05 4", "32 0.1 1", "32 0.1 4",
                                         "32 0.05 1", "32 0.05 4"));
  EXPECT_EQ(made.cases[6].config.batch_size, 32);
  EXPECT_EQ(made.cases[6].config.lr, 0.05);
  EXPECT_EQ(made.cases[7].ranks, 4);
  EXPECT_EQ(made.for_all, "data glyphs, model lenet, epochs 1");
}

TEST(SweepPlan, OfNoListIsOneTrainingOnAllRanks) {
  const SweepPlan made = plan("--lr 0.1", 3);
  EXPECT_THAT(rows_of(made), ElementsAre("3"));
  EXPECT_EQ(made.for_all, "data glyphs, model lenet, epochs 1, lr 0.1");
}

TEST(SweepPlan, ComparesRanksWhereTheyMeetAllElse) {
  const SweepPlan crossed = plan("--ranks 1,2 --batch-size 8,16");
  EXPECT_TRUE(crossed.compares_ranks);
  EXPECT_EQ(crossed.cases[0].kin, crossed.cases[1].kin);
  EXPECT_NE(crossed.cases[0].kin, crossed.cases[2].kin);
  const SweepPlan walked = plan("--ranks 1,2 --batch-size 8,16 --together ranks,batch-size --model mlp,linear");
  EXPECT_FALSE(walked.compares_ranks);
  EXPECT_EQ(walked.cases[0].kin, walked.cases[1].kin);
  EXPECT_NE(walked.cases[0].kin, walked.cases[2].kin);
}

TEST(SweepPlan, WalksTogetherWhatIsToldSo) {
  EXPECT_THAT(rows_of(plan("--ranks 1,2,2 --batch-size 8,16,8 --together ranks,batch-size --lr 0.1,0.2")),
              ElementsAre("8 0.1 1", "16 0.1 2", "8 0.1 2", "8 0.2 1", "16 0.2 2", "8 0.2 2"));
  EXPECT_THAT(
      rows_of(plan("--seed 1,2 --lr 0.1,0.2 --together seed,lr --ranks 1,2 --parts 2,4 --together ranks,parts")),
      ElementsAre("0.1 1 2 1", "0.1 1 4 2", "0.2 2 2 1", "0.2 2 4 2"));
}

TEST(SweepPlan, ScalesTheRateFromTheFirstBatchToWhatIsTold) {
  const SweepPlan made = plan("--batch-size 100,200,300 --lr 0.1 --scale-lr --ranks 1");
  EXPECT_THAT(rows_of(made), ElementsAre("100 0.1 1", "200 0.2 1", "300 0.3 1"));
  EXPECT_EQ(made.cases[2].config.lr, 0.3);
  EXPECT_THAT(rows_of(plan("--batch-size 64,32 --lr 0.1,0.2 --scale-lr --ranks 1")),
              ElementsAre("64 0.1 1", "64 0.2 1", "32 0.05 1", "32 0.1 1"));
}

TEST(SweepPlan, TakesValuesWithCommasOneByOne) {
  const SweepPlan made = plan("--ranks 2 --parts 4 --part-map even --part-map 3,1 --schedule step --lr-period 2,4");
  EXPECT_THAT(rows_of(made), ElementsAre("even 2", "3,1 2"));
  EXPECT_EQ(made.cases[0].config.lr_period, "2,4");
}

TEST(SweepPlan, LeavesOutWhatCannotBe) {
  EXPECT_THAT(rows_of(plan("--parts 1,4 --ranks 1,2,4")),
              ElementsAre("1 1", "1 2 not", "1 4 not", "4 1", "4 2", "4 4"));
  EXPECT_THAT(rows_of(plan("--exchange ring,exact --shard-optimizer --ranks 2")), ElementsAre("ring 2 not", "exact 2"));
  EXPECT_THAT(rows_of(plan("--optimizer sgd,adamw --momentum 0,0.9 --ranks 2")),
              ElementsAre("sgd 0 2", "sgd 0.9 2", "adamw 0 2", "adamw 0.9 2 not"));
}

TEST(SweepPlan, HasDefaultsThatFitEachCombination) {
  const SweepPlan made = plan("--optimizer sgd,adamw");
  EXPECT_EQ(made.cases[0].config.momentum, 0.9);
  EXPECT_EQ(made.cases[1].config.momentum, 0);
  EXPECT_EQ(made.cases[0].config.epochs, 1);
  EXPECT_EQ(plan("--steps 9").cases[0].config.epochs, RunConfig{}.epochs);
  EXPECT_EQ(plan("--steps 9 --epochs 1").cases[0].config.epochs, 1);
}

TEST(SweepPlan, RefusesWhatNoRowCanHave) {
  for (const auto& [options, words] : std::vector<std::pair<std::string, std::string>>{
           {"--exchange ring,rign", "--exchange rign: must be one of"},
           {"--model mlp,lenot", "lenot"},
           {"--optimizer sgd,adamw --momentum 0.9", "--momentum 0.9 belongs to sgd and lars"},
           {"--lr 0.1,fast", "--lr fast: must be a number"},
           {"--lr 0.1,-1", "-1"},
           {"--batch-size 64,1e2", "--batch-size 1e2: must be a whole number"},
           {"--batch-size 64,0", "--batch-size 0"},
           {"--batch-size 0,64 --scale-lr", "--batch-size 0"},
           {"--lr 0.1,,0.2", "--lr '0.1,,0.2': a value is empty"},
           {"--lr 0.1,0.2,0.1", "--lr has 0.1 twice"},
           {"--ranks 1,5", "--ranks 5: this launch has 4"},
           {"--ranks 0", "--ranks 0: this launch has 4"},
           {"--ranks two", "--ranks two"},
           {"--ranks 2,1", "--ranks 2,1: give ascending counts"},
           {"--together ranks,lr --ranks 1,2 --lr 0.1,0.2,0.3", "--ranks has 2 values and --lr has 3"},
           {"--together lr,epochs --lr 0.1,0.2", "'epochs' has no list of its own"},
           {"--together lr,lr --lr 0.1,0.2", "'lr' has no list of its own"},
           {"--together lr,seed --together seed,ranks --lr 0.1,0.2 --seed 1,2 --ranks 1,2", "'seed' has no list"},
           {"--scale-lr", "--scale-lr wants several values of --batch-size"},
           {"--parts 1 --ranks 2,4", "2 ranks cannot share 1 part: "},
           {"--out runs", "--out"},
           {"--rehearse kill", "--rehearse"},
           {"--lr 0.1 0.2", "0.2"}}) {
    EXPECT_THAT(refusal(options), HasSubstr(words)) << options;
  }
  std::string hundred = "0";
  for (int i = 1; i <= 100; ++i) hundred += "," + std::to_string(i);
  EXPECT_THAT(refusal("--seed " + hundred + " --lr-decay " + hundred), HasSubstr("more than 10000 combinations"));
}

}  // namespace
}  // namespace tutti
