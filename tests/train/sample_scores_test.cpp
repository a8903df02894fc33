#include "tutti/base/error.hpp"
#include "tutti/train/evaluation.hpp"

#include "support/mpi_world.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"
#include "train/rank_run.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr const char* kScoredData = "synthetic:11000x1x8x8:3";  // 1,100 test images: four chunks and a short one

// The state after a short training, which is the same on every rank.
const TrainState& trained() {
  static const TrainState state = [] {
    const TrainerOptions options{.batch_size = 64, .epochs = 1000};
    TrainingRun run(options, {.name = kScoredData, .model = small_resnet()});
    for (int step = 0; step < 20; ++step) run.trainer.step();
    return run.trainer.snapshot();
  }();
  return state;
}

struct Scores {
  LossSums sums;
  std::vector<std::int64_t> firsts;
  std::vector<SampleResult> samples;
  std::vector<float> logits;
};

// Evaluates on all ranks of `world`, each with `workers` workers. Only rank 0 gets more than the sums.
Scores score(World& world, int workers, const std::function<void(const ChunkScores&)>& also = {}) {
  static const OwnedData data = open_small(kScoredData);
  const auto backend = make_cpu_backend();
  const auto communicator = world.size() == 1 ? make_solo_communicator() : make_mpi_communicator(world, {});
  const Network network(small_resnet(), data.pair.test->info().image, 3);
  Scores scores;
  const ScoreOutlet outlet{.world = world, .receive = [&](const ChunkScores& chunk) {
                             scores.firsts.push_back(chunk.first);
                             scores.samples.insert(scores.samples.end(), chunk.samples.begin(), chunk.samples.end());
                             scores.logits.insert(scores.logits.end(), chunk.logits.begin(), chunk.logits.end());
                             if (also) also(chunk);
                           }};
  const ImageRecipe recipe;
  scores.sums = evaluate({.backend = *backend,
                          .communicator = *communicator,
                          .network = network,
                          .data = *data.pair.test,
                          .recipe = recipe,
                          .max_workers = workers,
                          .scores = &outlet},
                         trained());
  world.barrier();
  return scores;
}

std::unique_ptr<World> first_ranks(int count) { return test_world().split(test_world().rank() < count ? 0 : -1); }

TEST(SampleScores, AreInOrderAndAddUpToTheEvaluation) {
  const auto world = first_ranks(1);
  if (world) {
    double losses = 0;
    std::int64_t correct = 0;
    const Scores scores = score(*world, 1, [&](const ChunkScores& chunk) {
      for (std::size_t i = 0; i < chunk.samples.size(); ++i) {
        const auto label = static_cast<std::size_t>(chunk.samples[i].label);
        EXPECT_NEAR(chunk.probability(i, 0) + chunk.probability(i, 1) + chunk.probability(i, 2), 1, 1e-14);
        losses -= std::log(chunk.probability(i, label));
        if (chunk.samples[i].predicted == chunk.samples[i].label) ++correct;
      }
    });
    ASSERT_EQ(scores.firsts.size(), 16U) << "chunks of 69";
    for (std::size_t i = 0; i < scores.firsts.size(); ++i) EXPECT_EQ(scores.firsts[i], 69 * static_cast<int>(i));
    EXPECT_EQ(scores.samples.size(), 1100u);
    EXPECT_EQ(scores.sums.samples, 1100);
    EXPECT_EQ(scores.sums.correct, correct);
    EXPECT_GT(correct, 400);
    EXPECT_NEAR(losses / 1100, scores.sums.mean_loss(), 1e-6);
  }
  test_world().barrier();
}

TEST(SampleScores, AreTheSameBitsOnAnyRanksAndWorkers) {
  Scores alone;
  if (const auto world = first_ranks(1)) alone = score(*world, 1);
  for (int ranks = 1; ranks <= test_world().size(); ++ranks) {
    const auto world = first_ranks(ranks);
    // The number of workers differs between ranks.
    const Scores scores = world ? score(*world, world->rank() + 2) : Scores{};
    if (test_world().rank() == 0) {
      EXPECT_EQ(scores.sums, alone.sums) << ranks;
      EXPECT_EQ(scores.firsts, alone.firsts) << ranks;
      EXPECT_EQ(scores.logits, alone.logits) << ranks;
      ASSERT_EQ(scores.samples.size(), alone.samples.size()) << ranks;
      for (std::size_t i = 0; i < alone.samples.size(); ++i) {
        EXPECT_EQ(scores.samples[i].exponentials, alone.samples[i].exponentials) << ranks << ", sample " << i;
        EXPECT_EQ(scores.samples[i].label, alone.samples[i].label) << ranks << ", sample " << i;
        EXPECT_EQ(scores.samples[i].predicted, alone.samples[i].predicted) << ranks << ", sample " << i;
      }
    } else if (world) {
      EXPECT_TRUE(scores.firsts.empty());
    }
    test_world().barrier();
  }
}

TEST(SampleScores, EndOnAllRanksWhenTheirReceiverFails) {
  const Error error = thrown_by([] {
    score(test_world(), 1, [](const ChunkScores& chunk) {
      if (chunk.first == 69) throw Error(ErrorSource::save, "the disk is full");
    });
  });
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  EXPECT_THAT(error, reports(ErrorSource::save, "the disk is full"));
  test_world().barrier();
}

TEST(ChunkScores, AreNanWhereALogitIsNan) {
  const std::vector<SampleResult> samples{{.exponentials = std::numeric_limits<double>::quiet_NaN()}};
  const std::vector<float> logits{1, std::numeric_limits<float>::quiet_NaN()};
  const ChunkScores chunk{.classes = 2, .samples = samples, .logits = logits};
  EXPECT_TRUE(std::isnan(chunk.probability(0, 0)));
}

}  // namespace
}  // namespace tutti
