#include "comm/mpi/algorithm_choice.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti::mpi {
namespace {

using enum AllReduceAlgorithm;

// The choice of a single rank that measures these times.
std::vector<AllReduceThreshold> choice_by(const TimeAllReduce& time) {
  return measure_thresholds(*make_solo_world(), {ring, direct}, time);
}

TEST(AlgorithmChoice, TakesAtEachSizeWhatIsFastestThere) {
  const auto choice = choice_by([](AllReduceAlgorithm algorithm, std::int64_t bytes) {
    return algorithm == ring ? 1e-6 : 1e-11 * static_cast<double>(bytes);
  });
  EXPECT_EQ(algorithm_for(choice, 1), direct);
  EXPECT_EQ(algorithm_for(choice, 128 << 10), direct);
  EXPECT_EQ(algorithm_for(choice, (128 << 10) + 1), ring);
  EXPECT_EQ(algorithm_for(choice, std::int64_t{1} << 40), ring);
  EXPECT_EQ(text_of(choice), "direct to 128 KiB, ring above,");
}

TEST(AlgorithmChoice, OfOneAlgorithmIsItsName) {
  EXPECT_EQ(text_of(choice_by([](AllReduceAlgorithm, std::int64_t) { return 1e-6; })), "ring");
}

TEST(AlgorithmChoice, StopsMeasuringWhereItGetsSlowAndTakesARingThere) {
  std::int64_t longest = 0;
  const auto choice = choice_by([&](AllReduceAlgorithm algorithm, std::int64_t bytes) {
    longest = std::max(longest, bytes);
    return static_cast<double>(bytes) * (algorithm == ring ? 4e-8 : 2e-8);
  });
  EXPECT_EQ(longest, 64 << 10);
  EXPECT_EQ(algorithm_for(choice, 128 << 10), direct);
  EXPECT_EQ(algorithm_for(choice, std::int64_t{1} << 20), ring);
}

}  // namespace
}  // namespace tutti::mpi
