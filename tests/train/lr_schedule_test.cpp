#include "tutti/train/lr_schedule.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(LrSchedule, ConstantStaysAtTheBase) {
  const LrSchedule schedule({.base = 0.3}, 10, 100);
  EXPECT_EQ(schedule.at(0, 0), 0.3);
  EXPECT_EQ(schedule.at(99, 9), 0.3);
}

TEST(LrSchedule, StepDropsEveryPeriodOrAtTheGivenEpochs) {
  const LrSchedule every({.schedule = Schedule::step, .base = 1, .period_epochs = {2}, .decay = 0.5}, 10, 100);
  EXPECT_EQ(every.at(19, 1), 1);
  EXPECT_EQ(every.at(20, 2), 0.5);
  EXPECT_EQ(every.at(59, 5), 0.25);
  const LrSchedule given({.schedule = Schedule::step, .base = 1, .period_epochs = {3, 5}, .decay = 0.5}, 10, 100);
  EXPECT_EQ(given.at(20, 2), 1);
  EXPECT_EQ(given.at(30, 3), 0.5);
  EXPECT_EQ(given.at(99, 9), 0.25);
}

TEST(LrSchedule, CosineFallsOverTheStepsAfterTheWarmUp) {
  const LrSchedule schedule({.schedule = Schedule::cosine, .base = 2, .warmup_epochs = 1}, 10, 110);
  EXPECT_DOUBLE_EQ(schedule.at(0, 0), 0.2);
  EXPECT_DOUBLE_EQ(schedule.at(9, 0), 2);
  EXPECT_DOUBLE_EQ(schedule.at(10, 1), 2);
  EXPECT_NEAR(schedule.at(60, 6), 1, 1e-12);
  EXPECT_GT(schedule.at(109, 10), 0);
  EXPECT_LT(schedule.at(109, 10), 0.002);
  EXPECT_EQ(schedule.at(150, 14), 0) << "a run may be longer than its schedule";
}

TEST(LrSchedule, NeverFallsBelowTheLeastRate) {
  const LrSchedule cosine({.schedule = Schedule::cosine, .base = 2, .warmup_epochs = 1, .min = 0.5}, 10, 110);
  EXPECT_DOUBLE_EQ(cosine.at(0, 0), 0.2);  // the warm-up still begins below it
  EXPECT_DOUBLE_EQ(cosine.at(10, 1), 2);
  EXPECT_NEAR(cosine.at(60, 6), 1.25, 1e-12);
  EXPECT_NEAR(cosine.at(109, 10), 0.5, 0.002);
  const LrSchedule step({.schedule = Schedule::step, .base = 1, .period_epochs = {2}, .decay = 0.1, .min = 0.05}, 10,
                        100);
  EXPECT_EQ(step.at(20, 2), 0.1);
  EXPECT_EQ(step.at(99, 9), 0.05);
}

// Of 500 steps, the rate rises over 115 from 0.2 of its peak, and falls to 0.07 of it.
TEST(LrSchedule, LinearIsATriangleWithAWarmUp) {
  const LrPlan plan{.schedule = Schedule::linear, .base = 10, .warmup_epochs = 2.3, .warmup_start = 2, .min = 0.7};
  const LrSchedule schedule(plan, 50, 500);
  EXPECT_DOUBLE_EQ(schedule.at(0, 0), 2 + 8.0 / 115);
  EXPECT_DOUBLE_EQ(schedule.at(114, 2), 10);
  EXPECT_DOUBLE_EQ(schedule.at(115, 2), 10);
  EXPECT_DOUBLE_EQ(schedule.at(116, 2), 10 - 9.3 / 385);
  EXPECT_DOUBLE_EQ(schedule.at(499, 9), 0.7 + 9.3 / 385);
  EXPECT_DOUBLE_EQ(schedule.at(600, 12), 0.7) << "a run may be longer than its schedule";
}

TEST(LrSchedule, RefusesInvalidPlans) {
  EXPECT_THROW(LrSchedule({.base = 0.1, .warmup_start = 0.2}, 10, 100), Error);
  EXPECT_THROW(LrSchedule({.base = 0.1, .min = 0.2}, 10, 100), Error);
  EXPECT_THROW(LrSchedule({.schedule = Schedule::step}, 10, 100), Error);
  EXPECT_THROW(LrSchedule({.base = -1}, 10, 100), Error);
  EXPECT_THROW(LrSchedule({.warmup_epochs = 10}, 10, 100), Error);
}

TEST(LrSchedule, PeriodsAreOneNumberOrAnAscendingList) {
  EXPECT_EQ(parse_lr_period("10"), (std::vector<std::int64_t>{10}));
  EXPECT_EQ(parse_lr_period("30,60,80"), (std::vector<std::int64_t>{30, 60, 80}));
  EXPECT_TRUE(parse_lr_period("").empty());
  for (const char* wrong : {"0", "-1", "a", "1,", ",1", "3,2", "1,,2", "2,2", "1 2"}) {
    EXPECT_THROW(parse_lr_period(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace tutti
