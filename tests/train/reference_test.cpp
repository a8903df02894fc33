#include "reference/lenet_double.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace tutti {
namespace {

TEST(Training, OfLenetFollowsTheDoublePrecisionReferenceOverTwentySteps) {
  const OwnedData owned = open_small("glyphs");
  const DataPair& data = owned.pair;
  const DatasetInfo& info = data.train->info();
  TrainerOptions options;
  options.batch_size = 16;
  options.learning_rate.base = 0.01;
  options.optimizer.momentum = 0;
  options.seed = 5;
  TrainingRun run(options, {.name = "glyphs", .model = built_in_model("lenet")});
  Trainer& trainer = run.trainer;

  std::map<std::string, reference::Values> weights;
  for (const NamedArray& array : trainer.snapshot().parameters) {
    weights[array.name] = reference::Values(array.values.begin(), array.values.end());
  }
  reference::LenetDouble expected({1, 28, 28}, 10, weights);
  const SplitBatchSampler sampler(info.samples, options.batch_size, 1, 0, options.last_batch,
                                  {.shuffle = options.shuffle, .seed = options.seed});

  LossSums before;
  for (std::int64_t step = 0; step < 20; ++step) {
    const std::vector<std::int64_t> indices = sampler.indices(0, step);
    SampleBatch samples;
    data.train->read(indices, samples);
    double loss = 0;
    for (std::size_t i = 0; i < indices.size(); ++i) {
      const std::uint8_t* const pixels = samples.images[i].pixels;
      reference::Values image(pixels, pixels + 784);
      for (double& pixel : image) pixel /= 255;
      loss += expected.accumulate(image, static_cast<std::size_t>(samples.labels[i]),
                                  1.0 / static_cast<double>(indices.size()));
    }
    expected.descend(options.learning_rate.base);

    trainer.step();
    const LossSums now = epoch_sums(trainer);
    const double measured = static_cast<double>(now.loss_quanta - before.loss_quanta) / LossSums::kLossScale;
    before = now;
    EXPECT_NEAR(measured / loss, 1, 1e-4) << "step " << step;
  }
}

}  // namespace
}  // namespace tutti
