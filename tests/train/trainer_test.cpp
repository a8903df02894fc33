#include "tutti/train/trainer.hpp"

#include "tutti/base/error.hpp"
#include "tutti/nn/models.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

// One rank's run on small data, all parts in place.
class SmallRun {
 public:
  explicit SmallRun(const TrainerOptions& options, const std::string& data = "synthetic:100x1x8x8:3")
      : backend_(make_cpu_backend()),
        communicator_(make_solo_communicator()),
        data_(open_data(data, "")),
        network_(built_in_model("mlp"), data_.train->info().image, data_.train->info().classes),
        trainer({.backend = *backend_,
                 .communicator = *communicator_,
                 .network = network_,
                 .train = *data_.train,
                 .test = data_.test.get()},
                options, {.configuration = "c", .model = "m", .versions = "v"}) {}

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  DataPair data_;
  Network network_;

 public:
  Trainer trainer;
};

class Recorder : public RunObserver {
 public:
  void on_step(const StepProgress& progress) override { steps.push_back(progress.step_in_epoch); }
  void on_stretch(const StretchReport& report) override { stretches.push_back(report); }
  void on_digest(const DigestReport& report) override { digests.push_back(report); }
  void on_epoch(const EpochReport& report) override { epochs.push_back(report); }
  void on_checkpoint(const TrainState& state) override { checkpoints.push_back(state); }

  std::vector<std::int64_t> steps;
  std::vector<StretchReport> stretches;
  std::vector<DigestReport> digests;
  std::vector<EpochReport> epochs;
  std::vector<TrainState> checkpoints;
};

TrainerOptions small() {
  TrainerOptions options;
  options.batch_size = 16;
  options.epochs = 2;
  return options;
}

TEST(Trainer, ReportsEveryEpochWithItsSums) {
  SmallRun run(small());
  Recorder seen;
  run.trainer.run(seen);
  EXPECT_EQ(run.trainer.planned_steps(), 14);
  EXPECT_EQ(seen.steps.size(), 14u);
  ASSERT_EQ(seen.epochs.size(), 2u);
  EXPECT_EQ(seen.epochs[1].epoch, 2);
  EXPECT_EQ(seen.epochs[1].step, 14);
  EXPECT_EQ(seen.epochs[0].train.samples, 100);
  ASSERT_TRUE(seen.epochs[0].test);
  EXPECT_EQ(seen.epochs[0].test->samples, 10);
  EXPECT_LT(seen.epochs[1].train.mean_loss(), seen.epochs[0].train.mean_loss());
  EXPECT_EQ(seen.epochs[1].weights_digest, run.trainer.weights_digest());
}

TEST(Trainer, EndedByStepsInsideAnEpochReportsTheStretch) {
  TrainerOptions options = small();
  options.steps = 9;
  SmallRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  ASSERT_EQ(seen.epochs.size(), 2u);
  EXPECT_EQ(seen.epochs[1].train.samples, 32);
  EXPECT_TRUE(seen.epochs[1].test);
}

TEST(Trainer, StretchesAddUpToTheEpoch) {
  TrainerOptions options = small();
  options.epochs = 1;
  options.log_every_steps = 1;
  SmallRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  std::int64_t loss_steps = 0;
  for (const StretchReport& stretch : seen.stretches) loss_steps += stretch.train.loss_steps;
  EXPECT_EQ(seen.stretches.size(), 7u);
  EXPECT_EQ(loss_steps, seen.epochs[0].train.loss_steps);
}

TEST(Trainer, SumsDoNotDependOnHowTheRankPlaysItsParts) {
  // The first step starts from equal weights, so its gradients agree up to rounding.
  const auto first_loss = [](int parts) {
    TrainerOptions options = small();
    options.num_parts = parts;
    SmallRun run(options);
    run.trainer.step();
    run.trainer.step();
    return run.trainer.epoch_sums().mean_loss();
  };
  const double whole = first_loss(1);
  EXPECT_NEAR(first_loss(3) / whole, 1, 1e-5);
  EXPECT_NEAR(first_loss(16) / whole, 1, 1e-5);
  EXPECT_NEAR(first_loss(40) / whole, 1, 1e-5);
}

TEST(Trainer, RestoredGoesOnToTheSameDigest) {
  TrainerOptions options = small();
  options.last_batch = LastBatch::rollover;
  options.epochs = 3;
  options.checkpoint_every_steps = 4;
  SmallRun whole(options);
  Recorder seen;
  whole.trainer.run(seen);
  ASSERT_GE(seen.checkpoints.size(), 4u);
  for (const TrainState& state : seen.checkpoints) {
    SmallRun rest(options);
    rest.trainer.restore(state);
    Recorder ignored;
    rest.trainer.run(ignored);
    EXPECT_EQ(rest.trainer.weights_digest(), whole.trainer.weights_digest()) << "from step " << state.progress.step;
  }
}

TEST(Trainer, RefusesACheckpointOfAnotherNetworkAndNamesTheTensor) {
  SmallRun run(small());
  TrainState state = run.trainer.snapshot();
  state.parameters[0].shape = Shape{3, 3};
  try {
    run.trainer.restore(state);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::checkpoint);
    EXPECT_NE(std::string(error.what()).find(state.parameters[0].name), std::string::npos) << error.what();
  }
  state.optimizer.clear();
  state.parameters[0].shape = run.trainer.snapshot().parameters[0].shape;
  EXPECT_THROW(run.trainer.restore(state), Error);
}

TEST(Trainer, TellsWhatRolloverLeavesOverAfterWholeEpochs) {
  TrainerOptions options = small();
  options.last_batch = LastBatch::rollover;
  RunObserver silent;
  SmallRun whole(options);
  whole.trainer.run(silent);
  EXPECT_EQ(whole.trainer.samples_left_over(), 200 % 16);
  options.steps = 3;
  SmallRun stretch(options);
  stretch.trainer.run(silent);
  EXPECT_EQ(stretch.trainer.samples_left_over(), 0);
}

TEST(Trainer, StretchesGoOnOverTheEndsOfEpochs) {
  TrainerOptions options = small();
  options.log_every_steps = 4;
  SmallRun run(options);
  Recorder seen;
  run.trainer.run(seen);
  // Of 14 steps, 7 an epoch with 4 samples in the last: steps 1-4, 5-8 and 9-12.
  ASSERT_EQ(seen.stretches.size(), 3u);
  EXPECT_EQ(seen.stretches[0].train.samples, 64);
  EXPECT_EQ(seen.stretches[1].train.samples, 52);
  EXPECT_EQ(seen.stretches[2].train.samples, 64);
}

TEST(Trainer, RefusesABatchThatNoEpochFills) {
  TrainerOptions options = small();
  options.batch_size = 101;
  options.last_batch = LastBatch::discard;
  EXPECT_THROW(SmallRun run(options), Error);
}

TEST(Trainer, RepeatsItsDigestsBitForBit) {
  TrainerOptions options = small();
  options.digest_every_steps = 1;
  const auto digests = [&] {
    SmallRun run(options);
    Recorder seen;
    run.trainer.run(seen);
    return seen.digests;
  };
  const auto once = digests();
  const auto again = digests();
  ASSERT_EQ(once.size(), 14u);
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_EQ(once[i].weights, again[i].weights);
    EXPECT_EQ(once[i].gradients, again[i].gradients);
    EXPECT_EQ(once[i].optimizer, again[i].optimizer);
  }
  EXPECT_NE(once[0].weights, once[1].weights);
}

}  // namespace
}  // namespace tutti
