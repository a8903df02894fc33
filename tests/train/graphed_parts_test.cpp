#include "nn/fake_backend.hpp"
#include "train/part_workers.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tutti {
namespace {

using testing_support::FakeBackend;

const Shape kSample{3, 1, 1};
// The head's weight and bias; then scale and shift of each norm, last first; then their statistics.
constexpr std::int64_t kHead = 32;
constexpr std::int64_t kWhole = 160;

NetworkSpec two_norms() {
  return {"net",
          Initializer::xavier,
          {{"a", BatchNormSpec{.relu = true}}, {"b", BatchNormSpec{}}, {"head", LinearSpec{.units = 2}}}};
}

struct Step {
  std::vector<float> gradients;
  std::vector<std::int64_t> ready;
};

// Computes steps of a rank with `parts` parts on a backend with one stream. The values of the batches change at each
// step.
class Rank {
 public:
  Rank(bool captures, std::size_t parts)
      : network_(two_norms(), kSample, 2), weights_block_(static_cast<std::size_t>(elements()), 0.5f), parts_(parts) {
    backend.captures = captures;
    weights_ = std::make_unique<NetworkWeights>(network_, backend, view(weights_block_));
  }

  // Computes each step `times` times.
  std::vector<Step> compute(int steps, const std::vector<std::int64_t>& bucket_ends, int times = 1) {
    const auto stream = backend.make_stream();
    PartWorkers pool({.network = network_,
                      .weights = *weights_,
                      .backend = backend,
                      .stream = *stream,
                      .restores_sums = true,
                      .rank_status = rank_status_});
    pool.plan(2, LayerMode::training);
    std::vector<float> total(weights_block_.size());
    GradientAccumulator sum(backend, view(total));
    pool.collect_gradients(sum, static_cast<std::int64_t>(parts_), bucket_ends);
    std::vector<std::vector<float>> images(parts_, std::vector<float>(6));
    std::vector<std::int32_t> labels{0, 1};
    std::vector<Step> steps_done;
    for (int step = 0; step < steps; ++step) {
      StepBatches batches;
      batches.global_samples = static_cast<std::int64_t>(2 * parts_);
      for (std::size_t part = 0; part < parts_; ++part) {
        for (std::size_t i = 0; i < 6; ++i) images[part][i] = static_cast<float>((7 * part + 3 * i) % 5 + step);
        batches.batches.push_back(
            {.part = static_cast<int>(part),
             .samples = 2,
             .first_position = static_cast<std::int64_t>(2 * part),
             .images = {images[part].data(), kSample.batch_of(2), ElementType::f32, MemorySpace::host},
             .labels = {labels.data(), Shape{2}, ElementType::i32, MemorySpace::host}});
      }
      Step& now = steps_done.emplace_back();
      for (int time = 0; time < times; ++time) {
        if (time > 0) pool.restore_sums();
        pool.compute({.batches = batches, .step = step}, [&](std::int64_t final) { now.ready.push_back(final); });
      }
      now.gradients = total;
    }
    sums = pool.sums();
    return steps_done;
  }

  FakeBackend backend;
  LossSums sums;

 private:
  std::int64_t elements() const { return network_.layout().block_elements(); }
  Tensor view(std::vector<float>& values) const {
    return {values.data(), Shape{elements()}, ElementType::f32, MemorySpace::host};
  }

  Network network_;
  std::vector<float> weights_block_;
  std::size_t parts_;
  RankStatus rank_status_;
  std::unique_ptr<NetworkWeights> weights_;
};

TEST(GraphedParts, HaveTheSumOfPartsThatAreComputedDirectly) {
  for (const std::size_t parts : {1u, 2u, 5u}) {
    for (const std::vector<std::int64_t>& bucket_ends :
         {std::vector<std::int64_t>{}, std::vector<std::int64_t>{kHead, kWhole}}) {
      Rank direct(false, parts);
      Rank graphed(true, parts);
      const auto expected = direct.compute(5, bucket_ends);
      const auto found = graphed.compute(5, bucket_ends);
      for (std::size_t step = 0; step < expected.size(); ++step) {
        EXPECT_EQ(found[step].gradients, expected[step].gradients) << parts << " parts, step " << step;
        EXPECT_EQ(found[step].ready.back(), kWhole);
      }
      // Each part is one graph, except the last one, which is cut where buckets end.
      EXPECT_EQ(graphed.backend.graphs, static_cast<int>(parts) + (bucket_ends.empty() ? 0 : 1));
      EXPECT_LT(graphed.backend.log.enqueued, direct.backend.log.enqueued);
    }
  }
}

TEST(GraphedParts, CanRepeatAStep) {
  Rank rank(true, 3);
  Rank once(false, 3);
  rank.compute(1, {}, 2);
  EXPECT_EQ(rank.backend.graphs, 3);
  once.compute(1, {});
  EXPECT_EQ(rank.sums, once.sums);
}

TEST(GraphedParts, ReportReadyElementsAtTheEndsOfBucketsInTheLastPart) {
  Rank rank(true, 3);
  const auto steps = rank.compute(4, {kHead, kWhole});
  EXPECT_EQ(steps.back().ready, (std::vector<std::int64_t>{0, 0, kHead, kWhole, kWhole}));  // and at the end
}

}  // namespace
}  // namespace tutti
