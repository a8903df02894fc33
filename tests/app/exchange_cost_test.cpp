#include "bench/exchange_cost.hpp"

#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti {
namespace {

TEST(ExchangeCost, IsMeasuredOnTheGradientsThatTheModelHas) {
  RunConfig config;
  config.data = "synthetic:512x1x12x12:4";
  config.model = "mlp";
  config.comm = Comm::mpi;
  Readied run(test_world(), config);
  run.trainer->step();
  run.trainer->settle();
  std::vector<float> gradients = read_gradients(run);
  const auto trained = host_f32(run.trainer->gradients());
  EXPECT_TRUE(std::ranges::equal(gradients, trained));
  EXPECT_GT(std::ranges::max(gradients), 0);

  const ExchangeCost cost = measure_exchange(test_world(), run, {.warmup = 1, .timed = 2}, gradients);
  const auto ranks = static_cast<float>(test_world().size());
  const auto summed = host_f32(run.trainer->gradients());
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    ASSERT_NEAR(summed[i], ranks * gradients[i], 1e-5F) << "every rank came with the same";
  }
  EXPECT_EQ(cost.sent_bytes > 0, test_world().size() > 1);
  EXPECT_EQ(run.trainer->steps_done(), 1);
}

}  // namespace
}  // namespace tutti
