#include "bench/step_account.hpp"

#include "bench/scaling_inputs.hpp"
#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

StepTimes step_of(double compute, double waiting) {
  return {.input = 0.01,
          .compute = {{compute / 2, 10}, {compute / 2, 20}},
          .driving = 0.02,
          .waiting = waiting,
          .update = 0.03};
}

TEST(StepAccount, TellsTheWaitForLateRanksFromThatForTheExchange) {
  World& world = test_world();
  const double late = 0.1 * world.rank();
  const double latest = 0.1 * (world.size() - 1);
  const StepAccount account = account_for(world, {step_of(1 + late, 0.05 + latest - late)});
  const double mean_late = latest / 2;
  EXPECT_NEAR(account.compute, 1 + mean_late, 1e-12);
  EXPECT_NEAR(account.imbalance, latest - mean_late, 1e-12);
  EXPECT_NEAR(account.exchange, 0.07, 1e-12);
  EXPECT_NEAR(account.input, 0.01, 1e-12);
  EXPECT_NEAR(account.update, 0.03, 1e-12);
  EXPECT_NEAR(account.total(), 1 + latest + 0.11, 1e-12);
}

TEST(StepAccount, IsTheMedianOverTheSteps) {
  const StepAccount account =
      account_for(test_world(), {step_of(1, 0.1), step_of(9, 0.1), step_of(2, 0.3), step_of(2, 0.2), step_of(1, 0.2)});
  EXPECT_NEAR(account.compute, 2, 1e-12);
  EXPECT_NEAR(account.exchange, 0.22, 1e-12);
}

TEST(StepAccount, MediansGoByStretch) {
  const StepTimes median = median_of({step_of(1, 0.1), step_of(3, 0.4), step_of(2, 0.2)});
  ASSERT_EQ(median.compute.size(), 2U);
  EXPECT_NEAR(median.compute[1].seconds, 1, 1e-12);
  EXPECT_EQ(median.compute[1].final_elements, 20);
  EXPECT_NEAR(median.waiting, 0.2, 1e-12);
}

TEST(Scaling, IsMeasuredByWholeBatchesHoweverFewTheSamples) {
  EXPECT_EQ(config_for_ranks({}, 64, 8192, 1).last_batch, LastBatch::rollover);
  Invocation chosen;
  chosen.given.insert("last-batch");
  EXPECT_EQ(config_for_ranks(chosen, 64, 8192, 1).last_batch, RunConfig().last_batch);
}

}  // namespace
}  // namespace tutti
