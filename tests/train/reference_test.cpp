#include "reference/network.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

TEST(Training, OfLenetFollowsTheDoublePrecisionReference) {
  const OwnedData owned = open_small("glyphs");
  const DataPair& data = owned.pair;
  const DatasetInfo& info = data.train->info();
  const auto backend = make_cpu_backend();
  const auto communicator = make_solo_communicator();
  const Network network(built_in_model("lenet"), info.image, info.classes);
  TrainerOptions options;
  options.batch_size = 16;
  options.learning_rate.base = 0.01;
  options.optimizer.momentum = 0;
  options.seed = 5;
  Trainer trainer({.backend = *backend, .communicator = *communicator, .network = network, .train = *data.train},
                  options, {});

  std::vector<reference::Array> weights;
  const TrainState start = trainer.snapshot();
  for (const ParameterSlice& slice : network.layout().slices()) {
    const auto array = std::ranges::find(start.parameters, slice.name, &NamedArray::name);
    ASSERT_NE(array, start.parameters.end());
    weights.emplace_back(slice.shape, array->values);
  }
  const reference::NetworkDouble expected(network, weights);
  const SplitBatchSampler sampler(info.samples, options.batch_size, 1, 0, options.last_batch,
                                  {.shuffle = options.shuffle, .seed = options.seed});

  LossSums before;
  for (std::int64_t step = 0; step < 5; ++step) {
    SampleBatch samples;
    data.train->read(sampler.indices(0, step), samples);
    reference::NetworkBatch batch{.images = reference::Array(info.image.batch_of(options.batch_size)),
                                  .labels = {samples.labels.begin(), samples.labels.end()},
                                  .gradient_scale = 1.0 / static_cast<double>(options.batch_size)};
    const std::int64_t pixels = info.image.elements();
    for (std::int64_t i = 0; i < batch.images.shape.elements(); ++i) {
      batch.images[i] = samples.images[static_cast<std::size_t>(i / pixels)].pixels[i % pixels] / 255.0;
    }
    const double loss = expected.loss(batch, LayerMode::training);
    const std::vector<reference::Array> gradients = expected.gradients(batch);
    for (std::size_t slice = 0; slice < weights.size(); ++slice) {
      for (std::int64_t i = 0; i < weights[slice].shape.elements(); ++i) {
        weights[slice][i] -= options.learning_rate.base * gradients[slice][i];
      }
    }

    trainer.step();
    const LossSums now = epoch_sums(trainer);
    const double measured = static_cast<double>(now.loss_quanta - before.loss_quanta) / LossSums::kLossScale;
    before = now;
    EXPECT_NEAR(measured / loss, 1, 1e-4) << "step " << step;
  }
}

}  // namespace
}  // namespace tutti
