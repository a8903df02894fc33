#include "support/child_process.hpp"
#include "support/trainer_words.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace tutti::test {
namespace {

double final_accuracy(const std::string& configuration) {
  const char* sources = std::getenv("TUTTI_SOURCE_DIR");
  if (sources == nullptr) throw std::runtime_error("TUTTI_SOURCE_DIR is not set: run this test by ctest");
  const ChildResult result = run_trainer(2, {"--config", std::string(sources) + "/jobs/" + configuration});
  EXPECT_EQ(result.status, 0) << result.err;
  return std::atof(last_word(result.out, "test acc ").c_str());
}

TEST(FashionMnist, LenetReaches89PercentAfterFiveEpochs) {
  EXPECT_GE(final_accuracy("fashion-mnist-lenet.toml"), 0.89);
}

TEST(FashionMnist, LenetAvgLearnsFromWeightsThatAreAlmostZero) {
  EXPECT_GE(final_accuracy("fashion-mnist-lenet-avg.toml"), 0.74);
}

}  // namespace
}  // namespace tutti::test
