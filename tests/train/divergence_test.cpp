// A bit flip on one rank is found at the next verification of the replicas and located exactly. The run ends. Resumed
// from its newest checkpoint, it ends with the bits of a run without a fault.

#include "tutti/base/error.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/watch/rehearsal.hpp"
#include "tutti/watch/time_profile.hpp"

#include "support/mpi_world.hpp"
#include "train/rank_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kEpoch = 7;  // steps
constexpr std::int64_t kFlippedSteps = 15;

struct Flip {
  int rank = 0;
  std::int64_t step = 0;  // the bit flips at its end, and a bit of the gradients before its update
  BitFlip bit{};
};

class Flipper final : public PhaseListener {
 public:
  Flipper(Trainer& trainer, const Flip& flip) : trainer_(trainer), flip_(flip) {}
  void on_begin(const StepPhase& at) override {
    const Phase phase = flip_.bit.block == "gradients" ? Phase::update : Phase::reports;
    if (at.step == flip_.step && at.phase == phase && !std::exchange(done_, true))
      flip(trainer_.replica().state(), flip_.bit);
  }

 private:
  Trainer& trainer_;
  Flip flip_;
  bool done_ = false;
};

// The last report of each kind and step on one rank.
class RunRecord : public RunObserver {
 public:
  void on_digest(const DigestReport& report) override {
    steps[report.step] = fmt::format("weights {:x} gradients {:x} optimizer {:x} statistics {:x}", report.weights,
                                     report.gradients, report.optimizer, report.statistics.value_or(0));
  }
  void on_epoch(const EpochReport& report) override {
    epochs[report.epoch] =
        fmt::format("{:x} loss {} correct {}", report.weights_digest, report.train.loss_quanta, report.train.correct);
  }
  void on_divergence(const DivergenceReport& report) override { divergences.push_back(report); }
  void on_checkpoint(TrainState state, double) override { checkpoints.push_back(std::move(state)); }

  std::map<std::int64_t, std::string> steps;
  std::map<std::int64_t, std::string> epochs;
  std::vector<DivergenceReport> divergences;
  std::vector<TrainState> checkpoints;
  std::string error;
};

TrainerOptions options_for(Exchange exchange, int every) {
  TrainerOptions options{.batch_size = 16, .num_parts = 3};
  options.exchange.kind = exchange;
  options.epochs = 100;
  options.steps = kFlippedSteps;
  options.optimizer.weight_decay = 5e-4;
  options.bucket_bytes = 8192;
  options.digest_every_steps = 3;
  options.safeguards = {.verify_every_steps = every};
  return options;
}

class Ranks {
 public:
  explicit Ranks(World& world) : world_(world) {}

  void run(RunRecord& record, const TrainerOptions& options, const std::optional<Flip>& flip = {}) {
    RankStatus rank_status;
    RankRun rank(world_, small_resnet(), data_.pair, options, &rank_status);
    Trainer& trainer = rank.trainer;
    if (!record.checkpoints.empty()) trainer.restore(record.checkpoints.back());
    std::optional<Flipper> flipper;
    if (flip && flip->rank == world_.rank()) rank_status.add(flipper.emplace(trainer, *flip));
    const Stopwatch outside;
    TimeProfile time_profile(world_, rank_status);
    const Stopwatch inside;
    try {
      trainer.run(record);
      const double inner_seconds = inside.seconds();
      const TimeShares accounted = time_profile.report().ranks.at(static_cast<std::size_t>(world_.rank()));
      EXPECT_GE(accounted.sum(), 0.999 * inner_seconds);
      EXPECT_LE(accounted.sum(), 1.001 * outside.seconds());
      EXPECT_GE(std::ranges::min(accounted.seconds), 0);
    } catch (const Error& error) {
      EXPECT_EQ(error.scope(), ErrorScope::all_ranks) << error.what();
      EXPECT_EQ(error.exit_status(), ExitStatus::diverged) << error.what();
      record.error = error.what();
    }
  }

 private:
  World& world_;
  OwnedData data_ = open_small("synthetic:103x1x8x8:5");
};

void expect_as_uninterrupted(const RunRecord& record, const RunRecord& uninterrupted) {
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.steps, uninterrupted.steps);
  EXPECT_EQ(record.epochs, uninterrupted.epochs);
}

// The replicas are verified at multiples, and at the ends of epochs and of the run.
std::int64_t check_at_or_after(std::int64_t step, int every) {
  while (step % every != 0 && step % kEpoch != 0 && step != kFlippedSteps) ++step;
  return step;
}
std::int64_t check_before(std::int64_t step, int every) {
  do {
    --step;
  } while (step % every != 0 && step % kEpoch != 0);
  return step;
}

struct Case {
  Exchange exchange;
  int every;
  int rank;
  std::int64_t step;
  const char* block;
  const char* tensor;
  std::int64_t element;
  int bit;
  std::vector<std::string> arrays;  // the report names this tensor of these arrays

  Flip flip() const { return {.rank = rank, .step = step, .bit = {block, tensor, element, bit}}; }
};

std::vector<Case> cases() {
  const std::string weights = "parameters/";
  const std::string velocity = "optimizer/velocity/";
  const std::string statistics = "statistics/";
  return {
      {Exchange::ring, 10, 1, 3, "weights", "head/weight", 17, 22, {velocity, weights}},
      {Exchange::ring, 3, 2, 4, "velocity", "block1.conv/weight", 100, 25, {velocity, weights}},
      {Exchange::ring, 1, 2, 7, "statistics", "block1.norm/mean", 3, 0, {statistics}},
      {Exchange::ring, 3, 0, 13, "gradients", "stem.conv/weight", 5, 24, {velocity, weights}},
      {Exchange::exact, 3, 0, 9, "velocity", "stem.norm/scale", 0, 31, {velocity}},
      {Exchange::exact, 10, 1, 1, "weights", "stem.conv/weight", 11, 30, {weights}},
      {Exchange::exact, 1, 2, 15, "gradients", "head/bias", 0, 22, {velocity, weights}},
      {Exchange::ring, 10, 2, 2, "weights", "block1.conv/weight", 9, 30, {weights}},
      {Exchange::sharded, 10, 0, 4, "weights", "block2.conv/weight", 3, 30, {weights}},
      {Exchange::sharded, 10, 1, 8, "weights", "head/weight", 20, 1, {weights}},
      {Exchange::sharded, 3, 2, 5, "statistics", "block2.norm/variance", 1, 20, {statistics}},
      {Exchange::central, 3, 0, 10, "weights", "block2.conv/weight", 7, 15, {weights}},
      {Exchange::central, 1, 1, 12, "weights", "head/bias", 2, 9, {weights}},
  };
}

std::map<Exchange, RunRecord>& uninterrupted_runs() {
  static std::map<Exchange, RunRecord> runs;
  return runs;
}
const RunRecord& uninterrupted(Ranks& ranks, Exchange exchange) {
  const auto [found, fresh] = uninterrupted_runs().try_emplace(exchange);
  TrainerOptions options = options_for(exchange, 1);
  options.safeguards = {};
  if (fresh) ranks.run(found->second, options);
  EXPECT_EQ(found->second.steps.size(), 5U);
  return found->second;
}

TEST(Divergence, IsFoundAndNamedWhereverABitFlips) {
  Ranks ranks(test_world());
  for (const Case& each : cases()) {
    SCOPED_TRACE(fmt::format("{}, every {}: {} {}", name_of(each.exchange), each.every, each.block, each.tensor));
    RunRecord record;
    ranks.run(record, options_for(each.exchange, each.every), each.flip());
    EXPECT_NE(record.error, "");
    ASSERT_EQ(record.divergences.size(), 1U);
    const DivergenceReport& found = record.divergences[0];
    EXPECT_EQ(found.ranks, std::vector{each.rank});
    EXPECT_EQ(found.equal_after, check_before(each.step, each.every));
    EXPECT_LE(found.step, check_at_or_after(each.step, each.every));
    std::vector<std::string> tensors = found.tensors;
    std::vector<std::string> expected;
    for (const std::string& array : each.arrays) expected.push_back(array + each.tensor);
    std::ranges::sort(tensors);
    EXPECT_EQ(tensors, expected);
  }
}

TEST(Divergence, IsFoundWithEveryOptimizerAndExchange) {
  Ranks ranks(test_world());
  const std::vector<std::function<void(TrainerOptions&)>> changes{
      [](TrainerOptions& options) { options.optimizer.kind = OptimizerKind::adamw; },
      [](TrainerOptions& options) { options.optimizer.kind = OptimizerKind::lars; },
      [](TrainerOptions& options) { options.exchange.shard_optimizer = true; },
      [](TrainerOptions& options) {
        options.num_parts = 12;
        options.max_workers = 3;
      }};
  for (const auto& choose : changes) {
    TrainerOptions options = options_for(Exchange::exact, 10);
    choose(options);
    RunRecord record;
    ranks.run(record, options, Flip{.rank = 1, .step = 6, .bit = {"weights", "head/weight", 4, 27}});
    ASSERT_EQ(record.divergences.size(), 1U);
    EXPECT_EQ(record.divergences[0].ranks, std::vector{1});
  }
}

TEST(Divergence, IsNotInTheNewestCheckpointAndAResumeEndsWithTheBitsOfAnUninterruptedRun) {
  Ranks ranks(test_world());
  for (const Exchange exchange : {Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central}) {
    RunRecord record;
    TrainerOptions options = options_for(exchange, 10);
    options.checkpoint_every_steps = 2;
    ranks.run(record, options, Flip{.rank = 1, .step = 11, .bit = {"weights", "head/bias", 1, 2}});
    ASSERT_EQ(record.divergences.size(), 1U);
    EXPECT_EQ(record.checkpoints.back().progress.step, 10);
    EXPECT_NE(std::exchange(record.error, ""), "");
    ranks.run(record, options);
    expect_as_uninterrupted(record, uninterrupted(ranks, exchange));
  }
}

TEST(Divergence, EndsTheRunOnAllRanksBeforeAnythingOfItIsSaved) {
  Ranks ranks(test_world());
  RunRecord record;
  TrainerOptions options = options_for(Exchange::ring, 10);
  options.checkpoint_every_steps = 2;
  ranks.run(record, options, Flip{.rank = 2, .step = 4, .bit = {"velocity", "head/bias", 1, 2}});
  EXPECT_NE(record.error.find("equal after step 2 and differ after step 4: rank 2 differs from all others in "
                              "optimizer/velocity/head/bias;"),
            std::string::npos)
      << record.error;
  EXPECT_EQ(record.checkpoints.size(), 1U);
  EXPECT_EQ(record.divergences.size(), 1U);
}

TEST(Divergence, OfTwoRanksNamesBoth) {
  const auto world = test_world().split(test_world().rank() < 2 ? 0 : -1);
  if (!world) return;
  Ranks ranks(*world);
  RunRecord record;
  ranks.run(record, options_for(Exchange::ring, 3),
            Flip{.rank = 1, .step = 5, .bit = {"statistics", "stem.norm/mean", 1, 2}});
  ASSERT_EQ(record.divergences.size(), 1U);
  EXPECT_EQ(record.divergences[0].ranks, (std::vector{0, 1}));
  EXPECT_NE(record.divergences[0].text.find("no value has a majority"), std::string::npos);
}

TEST(Divergence, BeforeTheFirstStepEndsTheRun) {
  Ranks ranks(test_world());
  TrainerOptions options = options_for(Exchange::ring, 3);
  if (test_world().rank() == 0) options.seed = 7;  // other weights
  RunRecord record;
  ranks.run(record, options);
  EXPECT_NE(record.error.find("the replicas differ before the first step of this run: rank 0 "), std::string::npos)
      << record.error;
}

TEST(Divergence, IsNotReportedInRunsWithoutAFault) {
  Ranks ranks(test_world());
  for (const Exchange exchange : {Exchange::ring, Exchange::exact, Exchange::sharded, Exchange::central}) {
    RunRecord record;
    ranks.run(record, options_for(exchange, 1));
    expect_as_uninterrupted(record, uninterrupted(ranks, exchange));
    EXPECT_TRUE(record.divergences.empty()) << name_of(exchange);
  }
}

}  // namespace
}  // namespace tutti
