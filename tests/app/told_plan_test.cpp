// What a training tells of how much it is going to do.

#include "support/child_process.hpp"
#include "support/trainer_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Words of_twenty_images(const Words& more) {
  Words words{"--model", "linear", "--data", "synthetic:20x1x4x4:2", "--threads", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(ToldPlan, CountsTheEpochsThatTheStepsLeave) {
  const ChildResult result = run_trainer(of_twenty_images({"--batch-size", "10", "--steps", "3"}));
  EXPECT_THAT(result.out, StartsWith("epoch 1/2, "));
  EXPECT_THAT(result.out, HasSubstr("\nepoch 2/2, "));
  EXPECT_THAT(result.err, HasSubstr("3 steps planned"));
  EXPECT_THAT(result.err, Not(HasSubstr("--batch-size")));
}

TEST(ToldPlan, NamesABatchThatIsNeverFull) {
  const ChildResult result = run_trainer(of_twenty_images({"--batch-size", "64", "--steps", "1"}));
  EXPECT_THAT(result.out, StartsWith("epoch 1/1, "));
  EXPECT_THAT(result.err, HasSubstr("--batch-size 64 is more than 20 training images: every step trains on all"));
  EXPECT_THAT(result.err, HasSubstr("1 step planned"));
  EXPECT_THAT(result.err, HasSubstr("done after 1 step, "));
}

}  // namespace
}  // namespace tutti::test
