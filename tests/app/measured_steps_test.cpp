#include "bench/measured_steps.hpp"

#include "bench/bench.hpp"
#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

StepTimes step_of(double compute, double waiting) {
  return {.input = 0.01,
          .compute = {{compute / 2, 10}, {compute / 2, 20}},
          .overlapped_exchange = 0.02,
          .waiting = waiting,
          .update = 0.03};
}

TEST(BusyWarning, IsForRanksThatWaitForACore) {
  EXPECT_EQ(busy_warning({{.name = "n1", .cores = 0.1, .present = 4, .ranks = 4}}), "");
  EXPECT_EQ(busy_warning({{.name = "n1", .cores = 2, .present = 4, .ranks = 2}}), "");
  EXPECT_EQ(busy_warning({{.name = "n1", .cores = 0, .present = 8, .ranks = 8},
                          {.name = "n2", .cores = 2.25, .present = 8, .ranks = 7}}),
            "host n2 is busy: 7 ranks share its 8 cores with other processes that use 2.2 cores, so the times include "
            "waits for a core: measure on idle hosts, with at most one rank per core");
}

TEST(StepAccount, SeparatesTheWaitForLateRanksFromTheExchange) {
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

TEST(StepAccount, MediansGoByInterval) {
  const StepTimes median = median_of({step_of(1, 0.1), step_of(3, 0.4), step_of(2, 0.2)});
  ASSERT_EQ(median.compute.size(), 2U);
  EXPECT_NEAR(median.compute[1].seconds, 1, 1e-12);
  EXPECT_EQ(median.compute[1].ready_elements, 20);
  EXPECT_NEAR(median.waiting, 0.2, 1e-12);
}

TEST(ScalingRun, TakesWholeBatchesHoweverFewTheSamples) {
  EXPECT_EQ(config_for_ranks({}, Exchange::ring, 64, 8192).trainer.last_batch, LastBatch::rollover);
  Invocation chosen;
  chosen.run.given.insert("last-batch");
  EXPECT_EQ(config_for_ranks(chosen, Exchange::ring, 64, 8192).trainer.last_batch, RunConfig().trainer.last_batch);
}

RunConfig small_config(Exchange exchange) {
  RunConfig config;
  config.data.train = "synthetic:512x1x12x12:4";
  config.model = "mlp";
  config.processor.comm = Comm::mpi;
  config.trainer.num_parts = test_world().size();
  config.exchange = exchange;
  return config;
}

TEST(PacedStep, SendsWhatAStepSendsAndCountsNothing) {
  for (const Exchange exchange : {Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central}) {
    PreparedTraining run(test_world(), small_config(exchange));
    Trainer& trainer = *run.trainer;
    trainer.step();
    StepTimes pace = timed_step(trainer);
    const std::uint64_t before = run.assembly.communicator->bytes_sent();
    timed_step(trainer);
    const std::uint64_t a_step = run.assembly.communicator->bytes_sent() - before;
    for (StepTimes::Interval& interval : pace.compute) interval.seconds = 0.001;
    const StepTimes paced = paced_step(trainer, pace);
    EXPECT_EQ(run.assembly.communicator->bytes_sent() - before, 2 * a_step) << name_of(exchange);
    EXPECT_EQ(trainer.steps_done(), 1);
    EXPECT_EQ(paced.compute.size(), pace.compute.size());
  }
}

TEST(TimedStep, AveragesTheWeightsAsAStepDoes) {
  RunConfig config = small_config(Exchange::ring);
  config.trainer.average.decay = 0.9;
  PreparedTraining run(test_world(), config);
  run.trainer->step();
  const auto before = run.trainer->replica().state().averages_digest();
  timed_step(*run.trainer);
  EXPECT_NE(run.trainer->replica().state().averages_digest(), before);
}

TEST(ExchangeStep, AddsUpTheGradientsOfAllRanks) {
  PreparedTraining run(test_world(), small_config(Exchange::ring));
  run.trainer->step();
  run.trainer->synchronize();
  const auto block = host_f32(run.trainer->replica().state().gradients());
  std::vector<float> gradients(block.begin(), block.end());
  EXPECT_GT(std::ranges::max(gradients), 0);
  exchange_step(*run.trainer, {.data = gradients.data(), .shape = Shape{std::ssize(gradients)}});
  run.trainer->synchronize();
  const auto ranks = static_cast<float>(test_world().size());
  for (std::size_t i = 0; i < gradients.size(); ++i) ASSERT_NEAR(block[i], ranks * gradients[i], 1e-5F);
  EXPECT_EQ(run.trainer->steps_done(), 1);
}

}  // namespace
}  // namespace tutti
