// Many more ranks than cores are slow, but give the same result as one rank, and no rank is reported as late.

#include "support/child_process.hpp"
#include "support/scratch_folder.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti::test {
namespace {

TEST(ManyRanks, TrainStepByStepAsOneRankAndNoneIsReportedAsLate) {
  const ScratchFolder folder;
  const auto train = [&](int ranks) {
    const std::string out = folder.file(std::to_string(ranks));
    const ChildResult run = run_trainer(
        ranks, with(words_of("--model mlp --parts 64 --batch-size 192 --steps 8 --digest-every 1 --stall-timeout 10"),
                    {"--out", out}));
    EXPECT_EQ(run.status, 0) << run.err;
    for (const char* word : {" late", " stuck", "not stuck", " gone", "stall"}) {
      EXPECT_EQ(run.err.find(word), std::string::npos) << run.err;
    }
    return out;
  };
  const ChildResult runs = run_trainer({"diff", train(1), train(64)});
  EXPECT_EQ(runs.status, 0) << runs.out << runs.err;
  EXPECT_EQ(count(runs.out, "9 records compared, of steps 1 to 8\n"), 1) << runs.out;
  EXPECT_TRUE(runs.out.ends_with("\nequal\n")) << runs.out;
}

}  // namespace
}  // namespace tutti::test
