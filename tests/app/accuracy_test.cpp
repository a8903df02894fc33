#include "support/child_process.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tutti::test {
namespace {

double last_test_accuracy(const ChildResult& result) { return std::atof(last_word(result.out, "test acc ").c_str()); }

TEST(Accuracy, GlyphsAreHardForALinearModelAndNotForLenet) {
  const ChildResult linear = run_trainer(2, {"--model", "linear", "--epochs", "5"});
  EXPECT_GT(last_test_accuracy(linear), 0.5) << linear.err;
  EXPECT_LE(last_test_accuracy(linear), 0.90) << linear.out;
  const ChildResult lenet = run_trainer(2, {"--epochs", "2"});
  EXPECT_GE(last_test_accuracy(lenet), 0.97) << lenet.out << lenet.err;
}

// Without a warm-up, training from these seeds stayed at the accuracy of guessing.
TEST(Accuracy, OfTheDefaultRecipeIsGoodFromSeedsThatCollapseWithoutWarmUp) {
  for (const char* seed : {"1", "5", "7", "9"}) {
    const ChildResult lenet = run_trainer(2, {"--epochs", "1", "--normalize", "auto", "--seed", seed});
    EXPECT_GE(last_test_accuracy(lenet), 0.95) << lenet.out << lenet.err;
  }
}

TEST(Accuracy, IsTheSameWhetherRanksShareTheOptimizerOrNot) {
  const double ring = last_test_accuracy(run_trainer(3, {"--epochs", "2", "--exchange", "ring"}));
  EXPECT_GE(ring, 0.97);
  EXPECT_NEAR(last_test_accuracy(run_trainer(3, {"--epochs", "2", "--exchange", "sharded"})), ring, 0.01);
}

}  // namespace
}  // namespace tutti::test
