#include "tutti/watch/rank_clocks.hpp"

#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tutti {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TEST(RankClocks, AreTheSameOnOneHost) {
  const ClockReading reading = measure_clock_offset(test_world());
  EXPECT_EQ(reading.offset_ns, 0);
  EXPECT_EQ(reading.error_ns, 0);
  EXPECT_LE(reading.at_ns, now_ns());
}

TEST(RankClocks, AreMeasuredToWithinTheReportedError) {
  const std::int64_t ahead = 7 * kSecond * test_world().rank();
  const ClockReading reading = measure_clock_offset(test_world(), [&] { return now_ns() + ahead; });
  EXPECT_LE(std::abs(reading.offset_ns - ahead), reading.error_ns);
  EXPECT_LT(reading.error_ns, kSecond);
}

TEST(RankClocks, DriftEvenlyBetweenReadingsAndBeyond) {
  const ClockReading one{.at_ns = 1000, .offset_ns = 100};
  const ClockReading other{.at_ns = 3000, .offset_ns = 140};
  EXPECT_EQ(root_clock_ns(one, other, 1000), 900);
  EXPECT_EQ(root_clock_ns(one, other, 2000), 2000 - 120);
  EXPECT_EQ(root_clock_ns(one, other, 4000), 4000 - 160);
  EXPECT_EQ(root_clock_ns(one, one, 5000), 4900);
}

}  // namespace
}  // namespace tutti
