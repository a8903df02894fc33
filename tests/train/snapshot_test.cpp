// The state that a trainer saves and restores.

#include "tutti/data/split_batch_sampler.hpp"

#include "storage/state_equality.hpp"
#include "support/thrown.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kSamples = 100;
constexpr std::int64_t kBatch = 16;

TrainerOptions snapshot_options() { return {.batch_size = kBatch, .num_parts = 3, .epochs = 3}; }

void append(std::vector<NamedArray>& arrays, std::vector<NamedArray> more) {
  std::ranges::move(more, std::back_inserter(arrays));
}

std::int64_t elements(const std::vector<NamedArray>& arrays) {
  std::int64_t sum = 0;
  for (const NamedArray& array : arrays) sum += array.shape.elements();
  return sum;
}

class Snapshot : public testing::Test {
 protected:
  Snapshot() {
    TrainerOptions options = snapshot_options();
    options.exchange.kind = Exchange::exact;
    options.optimizer.kind = OptimizerKind::adamw;
    run_.emplace(options, RunData{.model = small_resnet()});
    for (int step = 0; step < 2; ++step) run_->trainer.step();
    whole_ = run_->trainer.snapshot();
  }

  std::optional<TrainingRun> run_;
  TrainState whole_;
};

TEST_F(Snapshot, OfMultipleSharesIsTheWholeState) {
  for (const int files : {2, 3}) {
    TrainState merged;
    for (int file = 0; file < files; ++file) {
      TrainState share = run_->trainer.snapshot(FileShard{.file = file, .files = files});
      EXPECT_EQ(share.progress, whole_.progress);
      EXPECT_EQ(share.command_line, "trainer");
      EXPECT_EQ(share.exchange.empty(), file > 0);
      const std::int64_t size = elements(share.parameters) + elements(share.statistics) + elements(share.optimizer);
      EXPECT_GT(size * files, 1000) << file;
      append(merged.parameters, std::move(share.parameters));
      append(merged.statistics, std::move(share.statistics));
      append(merged.optimizer, std::move(share.optimizer));
      append(merged.exchange, std::move(share.exchange));
    }
    expect_equal_bits(merged.parameters, whole_.parameters);
    expect_equal_bits(merged.statistics, whole_.statistics);
    expect_equal_bits(merged.optimizer, whole_.optimizer);
    expect_equal_bits(merged.exchange, whole_.exchange);
  }
}

TEST_F(Snapshot, WithoutAShareHasNoArrays) {
  const TrainState state = run_->trainer.snapshot({});
  EXPECT_EQ(state.progress, whole_.progress);
  EXPECT_EQ(state.configuration, whole_.configuration);
  EXPECT_TRUE(state.parameters.empty() && state.statistics.empty() && state.optimizer.empty() &&
              state.exchange.empty());
}

TEST(Progress, HasThePositionOfTheSampler) {
  for (const LastBatch last : {LastBatch::keep, LastBatch::discard, LastBatch::rollover}) {
    TrainerOptions options = snapshot_options();
    options.last_batch = last;
    options.seed = std::numeric_limits<std::uint64_t>::max();
    options.checkpoint_every_steps = 1;
    options.learning_rate.warmup_epochs = 1;
    TrainingRun run(options);
    Recorder seen;
    run.trainer.run(seen);
    const SplitBatchSampler sampler(kSamples, kBatch, 1, 0, last);
    std::int64_t epoch = 0;
    std::int64_t step = 0;
    std::int64_t taken = 0;
    for (const TrainState& state : seen.checkpoints) {
      taken += sampler.batch_samples(epoch, step++);
      if (step == sampler.steps(epoch)) {
        ++epoch;
        step = taken = 0;
      }
      const TrainProgress& found = state.progress;
      EXPECT_EQ(found.epoch, epoch);
      EXPECT_EQ(found.step_in_epoch, step);
      EXPECT_EQ(found.samples_in_epoch, taken);
      EXPECT_EQ(found.carried_over, last == LastBatch::rollover && epoch > 0 ? sampler.remainder(epoch - 1) : 0);
      EXPECT_EQ(found.planned_steps, run.trainer.planned_steps());
      const auto warm = static_cast<double>(std::min(found.step, sampler.steps(0)));
      EXPECT_DOUBLE_EQ(found.learning_rate, 0.05 * warm / static_cast<double>(sampler.steps(0)));
      EXPECT_EQ(found.seed, -1);
      EXPECT_EQ(found.parts, 3);
    }
    EXPECT_EQ(std::ssize(seen.checkpoints), run.trainer.planned_steps());
  }
}

TEST(Progress, ThatDoesNotMatchIsRefusedByNameWithBothValues) {
  TrainerOptions options = snapshot_options();
  options.last_batch = LastBatch::rollover;
  options.checkpoint_every_steps = 9;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  const TrainState good = seen.checkpoints.at(0);  // three steps into the second epoch, that begins with 4 samples
  const auto refusal = [&](std::int64_t TrainProgress::*item, std::int64_t value) {
    TrainState state = good;
    state.progress.*item = value;
    const Error error = thrown_by([&] { run.trainer.restore(state); });
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    return std::string(error.what()).substr(0, std::string(error.what()).find(" with"));
  };
  EXPECT_EQ(refusal(&TrainProgress::seed, 7), "seed is 7 in the checkpoint, but 0");
  EXPECT_EQ(refusal(&TrainProgress::parts, 4), "parts is 4 in the checkpoint, but 3");
  EXPECT_EQ(refusal(&TrainProgress::samples_in_epoch, 47), "samples_in_epoch is 47 in the checkpoint, but 48");
  EXPECT_EQ(refusal(&TrainProgress::carried_over, 5), "carried_over is 5 in the checkpoint, but 4");
  EXPECT_EQ(refusal(&TrainProgress::step, 10), "step is 10 in the checkpoint, but 9");
  EXPECT_EQ(refusal(&TrainProgress::step_in_epoch, 6), "step_in_epoch is 6 in the checkpoint, but 0 to 5");
  EXPECT_EQ(refusal(&TrainProgress::epoch, -1), "epoch is -1 in the checkpoint, but 0 to 2147483646");
  TrainState state = good;
  state.progress.planned_steps = 99;
  run.trainer.restore(state);
  EXPECT_EQ(run.trainer.snapshot().progress, good.progress);
}

// Batches of more than the data set: every third epoch has a step.
TEST(Progress, SkipsEpochsWithoutSteps) {
  TrainerOptions options = snapshot_options();
  options.batch_size = 250;
  options.last_batch = LastBatch::rollover;
  options.epochs = 4;
  Recorder seen;
  TrainingRun part(options);
  EXPECT_EQ(part.trainer.run(seen), RunEnd::planned);
  options.epochs = 6;
  TrainingRun rest(options);
  rest.trainer.restore(part.trainer.snapshot());
  rest.trainer.run(seen);
  TrainingRun whole(options);
  Recorder unbroken;
  whole.trainer.run(unbroken);
  ASSERT_EQ(seen.epochs.size(), unbroken.epochs.size());
  EXPECT_EQ(seen.epochs.back().epoch, unbroken.epochs.back().epoch);
  EXPECT_EQ(rest.trainer.weights_digest(), whole.trainer.weights_digest());
}

constexpr std::array kSchedules{Schedule::constant, Schedule::step, Schedule::cosine};
constexpr std::array kLastBatches{LastBatch::keep, LastBatch::discard, LastBatch::rollover};

TEST(Progress, OfAResumedRunGivesTheBitsOfAnUninterruptedOne) {
  std::minstd_rand random(31);
  const auto below = [&](std::int64_t limit) { return static_cast<std::int64_t>(random()) % limit; };
  for (int run = 0; run < 30; ++run) {
    TrainerOptions options = snapshot_options();
    options.last_batch = kLastBatches.at(static_cast<std::size_t>(below(3)));
    options.learning_rate = {.schedule = kSchedules.at(static_cast<std::size_t>(run % 3)),
                             .period_epochs = {1 + below(2)},
                             .warmup_epochs = 0.25 * static_cast<double>(below(5))};
    if (below(3) == 0) options.schedule_epochs = 2 + below(4);
    Recorder seen;
    TrainingRun whole(options);
    whole.trainer.run(seen);
    std::optional<TrainState> state;
    for (std::int64_t done = 0; done < whole.trainer.planned_steps();) {
      options.steps = done + 1 + below(9);
      TrainingRun leg(options);
      if (state) leg.trainer.restore(*state);
      leg.trainer.run(seen);
      state = leg.trainer.snapshot();
      done = state->progress.step;
    }
    EXPECT_EQ(state->progress.learning_rate, whole.trainer.snapshot().progress.learning_rate) << run;
    expect_equal_bits(state->parameters, whole.trainer.snapshot().parameters);
  }
}

TEST(Progress, OfAnExtendedRunFollowsItsFirstSchedule) {
  TrainerOptions options = snapshot_options();
  options.learning_rate.schedule = Schedule::cosine;
  options.schedule_epochs = 6;
  TrainingRun begun(options);
  Recorder seen;
  begun.trainer.run(seen);
  options.epochs = 6;
  TrainingRun longer(options);
  longer.trainer.restore(begun.trainer.snapshot());
  longer.trainer.run(seen);
  options.schedule_epochs = 0;
  TrainingRun whole(options);
  whole.trainer.run(seen);
  EXPECT_EQ(longer.trainer.weights_digest(), whole.trainer.weights_digest());
}

TEST(Progress, OfAnOlderRunFollowsTheScheduleThatEndsWithItsSteps) {
  TrainerOptions options = snapshot_options();
  options.learning_rate.schedule = Schedule::cosine;
  options.schedule_epochs = kScheduleOfInvocation;
  options.steps = 12;
  TrainingRun run(options);
  for (int step = 0; step < 6; ++step) run.trainer.step();
  EXPECT_DOUBLE_EQ(run.trainer.learning_rate(), 0.05 / 2);
}

TEST(BestTest, IsTheEarliestEvaluationWithTheMostCorrectAnswersAndIsSaved) {
  TrainerOptions options = snapshot_options();
  options.epochs = 12;
  options.checkpoint_at_best = true;
  TrainingRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  BestTest best;
  std::vector<std::int64_t> improved;
  for (const EpochReport& epoch : seen.epochs) {
    if (best.step >= 0 && epoch.test->correct <= best.correct) continue;
    best = {.step = epoch.step, .correct = epoch.test->correct, .samples = epoch.test->samples};
    improved.push_back(epoch.step);
  }
  EXPECT_LT(improved.size(), seen.epochs.size());
  std::vector<std::int64_t> saved;
  for (const TrainState& state : seen.checkpoints) {
    saved.push_back(state.progress.best.step);
    EXPECT_EQ(state.progress.step, state.progress.best.step);
  }
  EXPECT_EQ(saved, improved);
  EXPECT_EQ(run.trainer.snapshot().progress.best, best);
  TrainingRun rest(options);
  rest.trainer.restore(seen.checkpoints.at(0));
  Recorder after;
  rest.trainer.run(after);
  EXPECT_EQ(after.checkpoints.size() + 1, saved.size());
  EXPECT_EQ(rest.trainer.snapshot().progress.best, best);
}

TEST(Samples, AreReportedForEveryStepAsTheSamplerAssignsThem) {
  TrainerOptions options = snapshot_options();
  options.last_batch = LastBatch::rollover;
  options.shuffle = Shuffle::partition;
  options.seed = 5;
  const ShuffleOptions rule{.shuffle = options.shuffle, .seed = options.seed};
  Recorder silent;
  TrainingRun(options).trainer.run(silent);
  EXPECT_TRUE(silent.samples.empty());
  options.reports_samples = true;
  Recorder seen;
  TrainingRun(options).trainer.run(seen);
  std::size_t reported = 0;
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const auto parts = SplitBatchSampler::for_parts(kSamples, kBatch, 3, {0, 3}, options.last_batch, rule);
    for (std::int64_t step = 0; step < parts[0].steps(epoch); ++step) {
      const SampleReport& report = seen.samples.at(reported++);
      EXPECT_EQ(report.step, static_cast<std::int64_t>(reported));
      EXPECT_EQ(report.epoch, epoch + 1);
      ASSERT_EQ(report.parts.size(), 3u);
      for (std::size_t part = 0; part < 3; ++part) EXPECT_EQ(report.parts[part], parts[part].indices(epoch, step));
    }
  }
  EXPECT_EQ(reported, seen.samples.size());
}

class StartFrom : public testing::Test {
 protected:
  StartFrom() {
    trained_.trainer.step();
    state_ = trained_.trainer.snapshot();
  }

  NamedArray& array(const std::string& name) { return *std::ranges::find(state_.parameters, name, &NamedArray::name); }
  std::string refusal() {
    TrainingRun run(snapshot_options(), {.model = small_resnet()});
    const Error error = thrown_by([&] { run.trainer.initialize_from(state_); });
    EXPECT_EQ(error.source(), ErrorSource::input);
    return error.what();
  }

  TrainingRun trained_{snapshot_options(), {.model = small_resnet()}};
  TrainState state_;
};

TEST_F(StartFrom, TakesWeightsAndStatisticsAndNothingElse) {
  TrainingRun run(snapshot_options(), {.model = small_resnet()});
  EXPECT_TRUE(run.trainer.initialize_from(state_).empty());
  const TrainState started = run.trainer.snapshot();
  expect_equal_bits(started.parameters, state_.parameters);
  expect_equal_bits(started.statistics, state_.statistics);
  EXPECT_EQ(started.optimizer.at(0).values, std::vector<float>(started.optimizer.at(0).values.size()));
  EXPECT_EQ(started.progress.step, 0);
  EXPECT_EQ(run.evaluate(), trained_.evaluate());
}

TEST_F(StartFrom, KeepsTheInitialValuesOfAHeadWithOtherClassesOrName) {
  const RunData five{.name = "synthetic:100x1x8x8:5", .model = small_resnet()};
  const std::vector<std::string> head{"head/weight", "head/bias"};
  const auto drawn = TrainingRun(snapshot_options(), five).trainer.snapshot().parameters;
  for (const bool renamed : {false, true}) {
    if (renamed) {
      for (const std::string& name : head) array(name).name.replace(0, 4, "fc");
    }
    TrainingRun run(snapshot_options(), five);
    EXPECT_EQ(run.trainer.initialize_from(state_), head);
    const auto started = run.trainer.snapshot().parameters;
    for (std::size_t i = 0; i < started.size(); ++i) {
      EXPECT_EQ(started[i].values, i < 2 ? drawn[i].values : state_.parameters[i].values) << started[i].name;
    }
  }
}

TEST_F(StartFrom, RefusesAnyOtherMismatchByNameAndShapes) {
  array("stem.conv/weight").shape = Shape{8, 3, 3, 3};
  EXPECT_TRUE(refusal().starts_with("stem.conv/weight is 8x3x3x3 in the checkpoint, but 8x1x3x3 in this model"))
      << refusal();
  array("stem.conv/weight").name = "stem.other/weight";
  EXPECT_TRUE(refusal().starts_with("stem.conv/weight is missing in the checkpoint, but 8x1x3x3 in this model"))
      << refusal();
  state_ = trained_.trainer.snapshot();
  state_.parameters.push_back({"block3.conv/weight", Shape{2}, {1, 2}});
  EXPECT_TRUE(refusal().starts_with("block3.conv/weight is 2 in the checkpoint, but missing in this model"))
      << refusal();
  array("head/weight").name = "fc/weight";
  EXPECT_NE(refusal().find("missing in this model"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace tutti
