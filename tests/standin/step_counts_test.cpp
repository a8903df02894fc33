// What a training step of one rank puts on a GPU: the work, which is the same for images and batches of any size, the
// host's calls, and by arithmetic the bytes that its kernels read and write. docs/gpus.md has the same numbers.

#include "tutti/backend/cuda_library.hpp"

#include "standin/control.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <variant>
#include <vector>

namespace tutti::standin {
namespace {

Counts difference(const Counts& after, const Counts& before) {
  Counts counts = after;
  for (const auto& [kind, count] : before) counts[kind] -= count;
  std::erase_if(counts, [](const auto& kind) { return kind.second == 0; });
  return counts;
}

std::int64_t sum_of(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& kind) { return sum + kind.second; });
}

// Of a step after all graphs have been captured: after the first step, that is two for each of the two places for
// findings.
EnqueuedWork work_of_a_step(const NetworkSpec& model, const std::string& data_name,
                            const std::vector<double>& class_weights = {}) {
  const auto backend = tutti_cuda_library().make_backend({.precision = Precision::bf16, .search_plans = false});
  const auto communicator = make_solo_communicator(backend.get());
  const OwnedData data = open_small(data_name);
  const Network network(model, data.pair.train->info().image, data.pair.train->info().classes);
  TrainerOptions options{.batch_size = 2, .epochs = 1};
  options.learning_rate.base = 0.001;
  options.learning_rate.warmup_epochs = 0;
  options.class_weights = class_weights;
  Trainer trainer({.backend = *backend,
                   .communicator = *communicator,
                   .network = network,
                   .train = *data.pair.train,
                   .test = nullptr},
                  options, {.configuration = "c", .model = "m", .versions = "v"});
  for (int step = 0; step < 5; ++step) trainer.step();
  const EnqueuedWork before = enqueued_so_far();
  trainer.step();
  const EnqueuedWork after = enqueued_so_far();
  trainer.synchronize();
  return {difference(after.calls, before.calls), difference(after.work, before.work)};
}

// The first copy brings the batch; the second graph has the others.
const Counts kCalls{{"GatherWork, int, int", 1}, {"copy", 1}, {"event", 8}, {"graph", 2}, {"wait", 2}};

TEST(Steps, OfLenetPutThisOnTheGpu) {
  const EnqueuedWork step = work_of_a_step(built_in_model("lenet"), "synthetic:16x1x16x16:10");
  EXPECT_EQ(step.calls, kCalls);
  EXPECT_EQ(step.work, (Counts{{"BiasRelu", 4},
                               {"BlockTable<FlatEntry<SearchElements<__nv_bfloat16> >, 32>", 1},
                               {"BlockTable<FlatEntry<SearchElements<float> >, 32>", 2},
                               {"BlockTable<FlatEntry<SgdElements>, 32>", 1},
                               {"BlockTable<UpdateEntry<SgdElements>, 16>", 1},
                               {"ConvolutionPass, ConvolutionShape, ConvolutionTensors, void*", 11},
                               {"GatherWork, int, int", 1},
                               {"ImageLayout, float const*, Pack<__nv_bfloat16>*", 1},
                               {"OutputGradient", 4},
                               {"Pool, Runs", 2},
                               {"PoolGradient, Runs", 2},
                               {"SoftmaxWork", 1},
                               {"copy", 3}}));
  EXPECT_EQ(sum_of(step.work), 31 + 3);
}

// The scale of the gradients differs from step to step; it is copied before the graph is launched.
TEST(Steps, WithClassWeightsAreTheSameGraphsAfterAnotherCopy) {
  const std::vector<double> weights{1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  const EnqueuedWork plain = work_of_a_step(built_in_model("lenet"), "synthetic:16x1x16x16:10");
  const EnqueuedWork step = work_of_a_step(built_in_model("lenet"), "synthetic:16x1x16x16:10", weights);
  Counts calls = plain.calls;
  ++calls["SmallCopy, unsigned char*, int"];
  EXPECT_EQ(step.calls, calls);
  EXPECT_EQ(sum_of(step.work), sum_of(plain.work) + 1);
}

TEST(Steps, OfResnet18PutThisOnTheGpu) {
  const EnqueuedWork step = work_of_a_step(built_in_model("resnet18"), "synthetic:16x1x8x8:10");
  EXPECT_EQ(step.calls, kCalls);
  EXPECT_EQ(step.work, (Counts{{"BiasRelu", 1},
                               {"BlockTable<FlatEntry<BlendElements>, 32>", 1},
                               {"BlockTable<FlatEntry<SearchElements<__nv_bfloat16> >, 32>", 1},
                               {"BlockTable<FlatEntry<SearchElements<float> >, 32>", 2},
                               {"BlockTable<FlatEntry<SgdElements>, 32>", 1},
                               {"BlockTable<UpdateEntry<SgdElements>, 16>", 2},
                               {"ConvolutionPass, ConvolutionShape, ConvolutionTensors, void*", 62},
                               {"GatherWork, int, int", 1},
                               {"GlobalAverage, Runs", 1},
                               {"GlobalAverageGradient, Runs", 1},
                               {"ImageLayout, float const*, Pack<__nv_bfloat16>*", 1},
                               {"NormApplication", 17},
                               {"NormGradientSums", 17},
                               {"NormPropagation", 17},
                               {"NormSums", 17},
                               {"OutputGradient", 1},
                               {"SoftmaxWork", 1},
                               {"copy", 3}}));
  EXPECT_EQ(sum_of(step.work), 144 + 3);
}

// Adds up the bytes of every layer in bf16, in which a pack has 8 channels. A kernel reads or writes a tensor once.
class StepBytes {
 public:
  StepBytes(const Network& network, std::int64_t samples)
      : network_(network), samples_(samples), readers_(network.layers().size()) {
    readers_.back() = 1;
    for (const NetworkLayer& layer : network.layers()) {
      if (layer.from != kImage) ++readers_[static_cast<std::size_t>(layer.from)];
      if (layer.residual_from != kImage) ++readers_[static_cast<std::size_t>(layer.residual_from)];
    }
  }

  std::int64_t sum() const {
    const ParameterLayout& layout = network_.layout();
    const std::int64_t trained = layout.trained_elements();
    std::int64_t bytes = 4 * layout.block_elements() + 20 * trained + 12 * (layout.block_elements() - trained) +
                         9 * samples_ * network_.sample().elements();  // search, sgd, blend, gather, conversion
    for (std::size_t i = 0; i < readers_.size(); ++i) {
      const NetworkLayer& layer = network_.layers()[i];
      const std::int64_t input = values(layer.input);
      const std::int64_t output = values(layer.output);
      bytes += layer.from == kImage ? 2 * input : 0;
      bytes += std::visit([&](const auto& spec) { return of(spec, layer, {input, output, readers_[i]}); }, layer.spec);
    }
    return bytes;
  }

 private:
  struct Extents {
    std::int64_t input;
    std::int64_t output;
    std::int64_t readers;
  };

  static std::int64_t padded(std::int64_t channels) { return (channels + 7) / 8 * 8; }
  std::int64_t values(const Shape& sample) const {
    return samples_ * padded(sample[0]) * (sample.elements() / sample[0]);
  }

  // The convolution's passes; bias and ReLU, and their gradient. The update reads the packed gradients instead of the
  // canonical ones and writes the packed filters, too; the search reads the packed gradients.
  template <class Weighted>
  std::int64_t of(const Weighted& spec, const NetworkLayer& layer, const Extents& extents) const requires requires {
    spec.bias;
  }
  {
    const std::int64_t filters = network_.layout().slice(layer.parameters[0]).shape.elements();
    const std::int64_t packed =
        filters / (layer.output[0] * layer.input[0]) * padded(layer.output[0]) * padded(layer.input[0]);
    const int passes = layer.from == kImage ? 2 : 3;
    std::int64_t bytes = 2 * passes * (extents.input + packed + extents.output) + 6 * packed - 8 * filters;
    if (!spec.bias && !spec.relu) return bytes;
    const bool rewrites = spec.relu || extents.readers > 1;
    return bytes + 2 * extents.output * (2 + extents.readers + (spec.relu ? 1 : 0) + (rewrites ? 1 : 0));
  }
  // Forward: x for the sums, x and y, the residual. Backward: x and dy for the sums, x, dy and dx, and the sum of
  // gradients. A byte of the mask is for 8 values.
  std::int64_t of(const BatchNormSpec& spec, const NetworkLayer&, const Extents& extents) const {
    const bool is_sum = extents.readers > 1;
    const bool writes_sum = (spec.add || is_sum) && (spec.relu || is_sum);
    const std::int64_t masks = spec.relu ? (writes_sum ? 2 : 3) : 0;
    return 2 * extents.input * (7 + (spec.add ? 1 : 0) + extents.readers + (writes_sum ? 1 : 0)) +
           masks * extents.input / 8;
  }
  // With a byte for the position of each value.
  std::int64_t of(const Pool2dSpec&, const NetworkLayer&, const Extents& extents) const {
    return 2 * (2 * extents.input + extents.output * (1 + extents.readers)) + 2 * extents.output;
  }
  template <class Other>
  std::int64_t of(const Other&, const NetworkLayer&, const Extents& extents) const {
    return 4 * (extents.input + extents.output);
  }

  const Network& network_;
  std::int64_t samples_;
  std::vector<std::int64_t> readers_;  // of each layer's output
};

TEST(Steps, MoveAsManyBytesInBf16) {
  EXPECT_EQ(StepBytes(Network(built_in_model("lenet"), {1, 28, 28}, 10), 64).sum() / 100'000, 352);
  EXPECT_EQ(StepBytes(Network(built_in_model("resnet18"), {1, 28, 28}, 10), 256).sum() / 1'000'000, 3989);
}

}  // namespace
}  // namespace tutti::standin
