#include "tutti/nn/network_instance.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/random.hpp"

#include "nn/fake_backend.hpp"
#include "nn/random_graph.hpp"

#include <cmath>

namespace tutti {
namespace {

using namespace testing_support;

const Shape kSample{3, 1, 1};
constexpr int kTwoClasses = 2;

// A network on the fake backend, with everything that a pass needs.
class TestedInstance {
 public:
  TestedInstance(const NetworkSpec& spec, const std::function<FakeTraits(std::uint32_t)>& traits, double smoothing = 0)
      : network_(spec, kSample, kTwoClasses),
        weight_memory_(backend.allocate(network_.layout().block_bytes())),
        gradient_memory_(backend.allocate(network_.layout().block_bytes())),
        stream_(backend.make_stream()) {
    backend.log.traits = traits;
    RandomSequence random(1, {});
    for (float& value : host_f32(block(weight_memory_))) value = static_cast<float>(2 * random.uniform() - 0.8);
    weights_.emplace(network_, backend, block(weight_memory_));
    instance.emplace(network_, *weights_, backend, LossOptions{.smoothing = smoothing});
  }

  GraphBatch batch_of(std::size_t samples) {
    GraphBatch batch{.images = {}, .labels = {}, .gradient_scale = 0.25f, .sample_fraction = 0.5f};
    RandomSequence random(samples, {});
    for (std::size_t i = 0; i < samples * 3; ++i) batch.images.push_back(static_cast<float>(random.normal()));
    for (std::size_t i = 0; i < samples; ++i)
      batch.labels.push_back(static_cast<std::int32_t>(random.below(kTwoClasses)));
    return batch;
  }

  void forward(const GraphBatch& batch, LayerMode mode) {
    images_.assign(batch.images.begin(), batch.images.end());
    labels_ = batch.labels;
    const auto samples = static_cast<std::int64_t>(labels_.size());
    instance->forward(*stream_, {images_.data(), kSample.batch_of(samples), ElementType::f32, MemorySpace::host}, mode,
                      {.seed = 7, .step = 3, .first_position = 40});
    instance->loss(*stream_, {labels_.data(), Shape{samples}, ElementType::i32, MemorySpace::host},
                   batch.gradient_scale, {});
  }

  std::vector<std::int64_t> backward(const GraphBatch& batch) {
    std::vector<std::int64_t> finished;
    instance->backward(*stream_, block(gradient_memory_), batch.sample_fraction,
                       [&](std::int64_t elements) { finished.push_back(elements); });
    return finished;
  }

  // Computes a whole pass at the addresses of forward(). Returns the reported numbers of ready elements.
  std::vector<std::int64_t> train(const GraphBatch& batch, std::span<const std::int64_t> bucket_ends = {}) {
    images_.assign(batch.images.begin(), batch.images.end());
    labels_ = batch.labels;
    const auto samples = static_cast<std::int64_t>(labels_.size());
    std::vector<std::int64_t> finished;
    instance->train(*stream_,
                    {.images = {images_.data(), kSample.batch_of(samples), ElementType::f32, MemorySpace::host},
                     .labels = {labels_.data(), Shape{samples}, ElementType::i32, MemorySpace::host},
                     .gradient_scale = batch.gradient_scale,
                     .sums = {},
                     .gradients = block(gradient_memory_),
                     .sample_fraction = batch.sample_fraction,
                     .place = {.seed = 7, .step = step_++, .first_position = 40},
                     .first_layer = first_layer},
                    {.bucket_ends = bucket_ends,
                     .before_backward = [&] { ++awaited; },
                     .after_layer = [&](std::int64_t elements) { finished.push_back(elements); }});
    return finished;
  }
  // Trains on the batch and compares all there is. Returns how many operations were enqueued one by one.
  int expect_trains(const GraphBatch& batch, std::span<const std::int64_t> bucket_ends = {}) {
    for (float& value : host_f32(block(gradient_memory_))) value = std::numeric_limits<float>::quiet_NaN();
    const int before = backend.log.enqueued;
    train(batch, bucket_ends);
    GraphResult expected = run_graph(network_, slices_of(weight_memory_), batch);
    for (std::size_t layer = 0; layer < first_layer; ++layer) {
      for (const int slice : network_.layers()[layer].parameters) {
        std::ranges::fill(expected.slices[static_cast<std::size_t>(slice)], 0);
      }
    }
    expect_like(expected);
    return backend.log.enqueued - before;
  }

  void expect_right(const GraphBatch& batch, LayerMode mode) {
    const GraphResult expected = run_graph(network_, slices_of(weight_memory_), batch);
    forward(batch, mode);
    ASSERT_EQ(backend.log.logits.size(), expected.logits.size());
    for (std::size_t i = 0; i < expected.logits.size(); ++i) {
      EXPECT_NEAR(backend.log.logits[i], expected.logits[i], 1e-4 * (1 + std::abs(expected.logits[i])));
    }
    if (mode == LayerMode::evaluation) return;
    for (float& value : host_f32(block(gradient_memory_))) value = std::numeric_limits<float>::quiet_NaN();
    backward(batch);
    expect_like(expected);
  }

  const Network& network() const { return network_; }
  void refresh() { weights_->refresh(*stream_); }
  int refreshed() const { return dynamic_cast<const FakeWeights&>(*weights_->of(0)).refreshed; }

  FakeBackend backend;
  std::optional<NetworkInstance> instance;
  int awaited = 0;              // by passes, before their backward
  std::size_t first_layer = 0;  // of train()

 private:
  void expect_like(const GraphResult& expected) {
    const auto got = slices_of(gradient_memory_);
    for (std::size_t s = 0; s < got.size(); ++s) {
      for (std::size_t i = 0; i < got[s].size(); ++i) {
        const auto wanted = expected.slices[s][i];
        EXPECT_NEAR(got[s][i], wanted, 1e-4 * (1 + std::abs(wanted))) << network_.layout().slices()[s].name;
      }
    }
  }
  Tensor block(const Buffer& memory) const {
    return memory.view(Shape{network_.layout().block_elements()}, ElementType::f32);
  }
  std::vector<Values> slices_of(const Buffer& memory) {
    std::vector<Values> all;
    for (const auto& slice : read_slices(backend, *stream_, block(memory), network_.layout().slices())) {
      all.emplace_back(slice.begin(), slice.end());
    }
    return all;
  }

  Network network_;
  Buffer weight_memory_;
  Buffer gradient_memory_;
  std::unique_ptr<Stream> stream_;
  std::optional<NetworkWeights> weights_;
  std::vector<float> images_ = std::vector<float>(64);  // is reallocated only when it is too small
  std::vector<std::int32_t> labels_ = std::vector<std::int32_t>(64);
  std::uint32_t step_ = 0;
};

FakeTraits some_traits(std::uint32_t seed) {
  std::mt19937 random(seed);
  return {.reads_input = random() % 2 == 0,
          .reads_output = random() % 2 == 0,
          .residual_gradient_in_place = random() % 2 == 0};
}

NetworkSpec spec_of(std::vector<LayerNode> layers) {
  layers.push_back({"head", LinearSpec{.units = kUnitsFromClasses}});
  return {"net", Initializer::xavier, std::move(layers)};
}

// Two residual blocks whose shortcut is the identity, as in a residual network's stage.
NetworkSpec two_blocks() {
  return spec_of({{"stem", BatchNormSpec{.relu = true}},
                  {"a.norm1", BatchNormSpec{.relu = true}},
                  {"a.norm2", BatchNormSpec{.add = true, .relu = true}, "", "stem"},
                  {"b.norm1", BatchNormSpec{.relu = true}},
                  {"b.norm2", BatchNormSpec{.add = true, .relu = true}, "", "a.norm2"}});
}

class NetworkInstanceOnRandomGraphs : public testing::TestWithParam<unsigned> {};

// Layers randomly declare the values that they read, overwrite all others, and batches alternate in one block of
// memory.
TEST_P(NetworkInstanceOnRandomGraphs, KeepsAllNeededValues) {
  for (unsigned i = 0; i < 100; ++i) {
    const unsigned seed = GetParam() * 100 + i;
    SCOPED_TRACE(seed);
    TestedInstance tested(RandomGraph(seed).spec(), [&](std::uint32_t purpose) { return some_traits(purpose ^ seed); });
    for (const std::int64_t samples : {5, 2}) tested.instance->plan(samples, LayerMode::training);
    tested.instance->plan(4, LayerMode::evaluation);
    tested.expect_right(tested.batch_of(5), LayerMode::training);
    tested.expect_right(tested.batch_of(2), LayerMode::training);
    tested.expect_right(tested.batch_of(4), LayerMode::evaluation);
    tested.expect_right(tested.batch_of(5), LayerMode::training);
    if (HasFailure()) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, NetworkInstanceOnRandomGraphs, testing::Range(0u, 4u));

TEST(NetworkInstance, GivesALayerTheGradientOfEachOfItsReadersAndNoneForTheImage) {
  for (const bool leaves : {false, true}) {
    TestedInstance tested(two_blocks(),
                          [&](std::uint32_t) { return FakeTraits{.residual_gradient_in_place = leaves}; });
    tested.instance->plan(2, LayerMode::training);
    tested.expect_right(tested.batch_of(2), LayerMode::training);
    std::map<std::uint32_t, FakeCall> calls;
    for (const FakeCall& call : tested.backend.log.backward) calls[call.random_purpose] = call;
    const std::map<std::string, std::size_t> readers{{"head", 1},    {"b.norm2", 1}, {"b.norm1", 1},
                                                     {"a.norm2", 2}, {"a.norm1", 1}, {"stem", 2}};
    ASSERT_EQ(tested.backend.log.backward.size(), readers.size());
    for (const auto& [name, count] : readers) {
      const FakeCall& call = calls.at(random_purpose(name));
      EXPECT_EQ(call.output_gradients, count) << name;
      EXPECT_EQ(call.wants_input_gradient, name != "stem") << name;
      EXPECT_EQ(call.gives_input_gradient, name != "stem") << name;
    }
  }
}

TEST(NetworkInstance, KeepsOnlyActivationsThatBackwardReads) {
  const auto bytes = [](const FakeTraits& traits, LayerMode mode) {
    TestedInstance tested(two_blocks(), [&](std::uint32_t) { return traits; });
    tested.instance->plan(1024, mode);
    return tested.instance->activation_bytes();
  };
  constexpr std::size_t kActivation = 1024 * 3 * sizeof(float);
  constexpr std::size_t kLogits = 1024 * kTwoClasses * sizeof(float);
  // The last norm's backward: five activations, the gradients of its output, its input and its residual.
  EXPECT_EQ(bytes({}, LayerMode::training), 8 * kActivation);
  // The head's: five activations, logits, and the gradients of both.
  EXPECT_EQ(bytes({.residual_gradient_in_place = true}, LayerMode::training), 6 * kActivation + 2 * kLogits);
  // Input, output and residual of the last block's norm at the most.
  const FakeTraits nothing{.reads_input = false, .reads_output = false, .residual_gradient_in_place = true};
  EXPECT_EQ(bytes(nothing, LayerMode::training), 3 * kActivation);
  EXPECT_EQ(bytes({}, LayerMode::evaluation), 3 * kActivation);
}

TEST(NetworkInstance, SharesOneBlockOfMemoryAmongAllPlans) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(64, LayerMode::training);
  const std::size_t bytes = tested.instance->activation_bytes();
  tested.instance->plan(63, LayerMode::training);
  tested.instance->plan(100, LayerMode::evaluation);
  EXPECT_EQ(tested.instance->activation_bytes(), bytes);
  tested.instance->plan(128, LayerMode::training);
  EXPECT_EQ(tested.instance->activation_bytes(), 2 * bytes);
}

TEST(NetworkInstance, ReportsTheStatisticsWithItsLastCall) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  const GraphBatch batch = tested.batch_of(2);
  tested.forward(batch, LayerMode::training);
  const ParameterLayout& layout = tested.network().layout();
  // head: weight and bias; then scale and shift of each norm, all padded to 16 elements.
  EXPECT_EQ(tested.backward(batch), (std::vector<std::int64_t>{32, 64, 96, 128, 160, layout.block_elements()}));
  EXPECT_EQ(layout.trained_elements(), 192);
  EXPECT_EQ(layout.block_elements(), 352);
}

TEST(NetworkInstance, PassesTheRandomPurposeAndThePositionOfTheBatchToLayers) {
  TestedInstance tested(spec_of({{"drop", DropoutSpec{}}}), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  tested.forward(tested.batch_of(2), LayerMode::training);
  const FakeCall& call = tested.backend.log.forward.front();
  EXPECT_EQ(call.random_purpose, random_purpose("drop"));
  EXPECT_EQ(call.place.seed, 7u);
  EXPECT_EQ(call.place.step, 3u);
  EXPECT_EQ(call.place.first_position, 40u);
}

TEST(NetworkInstance, SmoothsLabelsInTrainingOnly) {
  TestedInstance tested(
      spec_of({}), [](std::uint32_t) { return FakeTraits{}; }, 0.1);
  tested.instance->plan(2, LayerMode::training);
  tested.instance->plan(2, LayerMode::evaluation);
  tested.forward(tested.batch_of(2), LayerMode::training);
  EXPECT_EQ(tested.backend.log.smoothing, 0.1);
  tested.forward(tested.batch_of(2), LayerMode::evaluation);
  EXPECT_EQ(tested.backend.log.smoothing, 0);
}

TEST(NetworkInstance, RefusesABatchSizeThatWasNotPlanned) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  EXPECT_THROW(tested.forward(tested.batch_of(3), LayerMode::training), Error);
  EXPECT_THROW(tested.forward(tested.batch_of(2), LayerMode::evaluation), Error);
}

TEST(NetworkInstance, RunsAPassDirectlyThenCapturesItAndThenLaunchesTheGraph) {
  TestedInstance tested(two_blocks(), [](std::uint32_t seed) { return some_traits(seed); });
  tested.backend.captures = true;
  for (const std::int64_t samples : {5, 2}) tested.instance->plan(samples, LayerMode::training);
  constexpr int kOperations = 6 + 1 + 6;
  GraphBatch batch = tested.batch_of(5);
  for (const int expected : {kOperations, kOperations, 0, 0}) {
    EXPECT_EQ(tested.expect_trains(batch), expected);
    std::ranges::rotate(batch.images, batch.images.begin() + 1);  // other values at the same address
  }
  EXPECT_EQ(tested.backend.graphs, 1);
  // Another size is another pass, which does not affect this one; another scale of the gradients is not.
  for (const int expected : {kOperations, kOperations, 0})
    EXPECT_EQ(tested.expect_trains(tested.batch_of(2)), expected);
  batch.gradient_scale = 0.125f;
  EXPECT_EQ(tested.expect_trains(batch), 0);
  EXPECT_EQ(tested.awaited, 8);
}

TEST(NetworkInstance, SplitsAGraphWhereBucketsEnd) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  tested.backend.captures = true;
  const GraphBatch batch = tested.batch_of(2);
  // head: weight and bias; then scale and shift of each norm, all padded to 16 elements.
  constexpr std::int64_t kWhole = 352;
  const std::vector<std::int64_t> bucket_ends{16, 32, 100, kWhole};
  for (int pass = 0; pass < 4; ++pass) {
    const auto expected = pass == 0 ? std::vector<std::int64_t>{32, 64, 96, 128, 160, kWhole}
                                    : std::vector<std::int64_t>{32, 128, kWhole};
    EXPECT_EQ(tested.train(batch, bucket_ends), expected);
  }
  EXPECT_EQ(tested.backend.graphs, 3);
  tested.expect_trains(batch, bucket_ends);
  // Without ends of buckets it is another pass with one graph.
  tested.train(batch);
  EXPECT_EQ(tested.train(batch), std::vector<std::int64_t>{kWhole});
}

TEST(NetworkInstance, EndsTheBackwardPassWithItsFirstLayerAndClearsTheGradientsOfThoseBefore) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  tested.backend.captures = true;
  const GraphBatch batch = tested.batch_of(2);
  tested.first_layer = 2;  // a.norm2, whose input and residual come from before it
  constexpr int kOperations = 6 + 1 + 4 + 8;
  for (const int expected : {kOperations, kOperations, 0}) EXPECT_EQ(tested.expect_trains(batch), expected);
  EXPECT_EQ(tested.backend.graphs, 1);
  for (const FakeCall& call : tested.backend.log.backward) {
    EXPECT_EQ(call.gives_input_gradient, call.random_purpose != random_purpose("a.norm2"));
  }
  tested.first_layer = 0;
  EXPECT_EQ(tested.expect_trains(batch), 6 + 1 + 6);
}

TEST(NetworkInstance, RunsAPassDirectlyIfAPieceOfItCannotBeCaptured) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  tested.backend.captures = true;
  tested.backend.max_graphs = 1;
  const std::vector<std::int64_t> bucket_ends{100};
  for (int pass = 0; pass < 4; ++pass) {
    const int enqueued = tested.expect_trains(tested.batch_of(2), bucket_ends);
    if (pass == 1) continue;  // is also captured, in part
    EXPECT_EQ(enqueued, 6 + 1 + 6);
  }
  EXPECT_EQ(tested.backend.graphs, 1);
}

TEST(NetworkInstance, ReportsAfterEveryLayerWithoutGraphs) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  for (int pass = 0; pass < 4; ++pass) {
    EXPECT_EQ(tested.train(tested.batch_of(2)), (std::vector<std::int64_t>{32, 64, 96, 128, 160, 352}));
  }
}

TEST(NetworkInstance, ComputesNoGradientsOfFrozenLayersBeforeTheFirstThatIsTrained) {
  NetworkSpec spec = spec_of({{"a", LinearSpec{.units = 3}}, {"drop", DropoutSpec{}}, {"b", LinearSpec{.units = 3}}});
  spec.layers[0].frozen = {ParameterKind::weight, ParameterKind::bias};
  TestedInstance tested(spec, [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  EXPECT_EQ(tested.train(tested.batch_of(2)).size(), 4U);
  const std::vector<FakeCall>& calls = tested.backend.log.backward;
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0].random_purpose, random_purpose("head"));
  EXPECT_EQ(calls[1].random_purpose, random_purpose("b"));
  EXPECT_TRUE(calls[0].gives_input_gradient);
  EXPECT_FALSE(calls[1].wants_input_gradient || calls[1].gives_input_gradient);
}

TEST(NetworkInstance, PassesThePositionOfAPassFromAGraphToLayers) {
  TestedInstance tested(spec_of({{"drop", DropoutSpec{}}}), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  tested.backend.captures = true;
  for (std::uint32_t step = 0; step < 4; ++step) {
    tested.train(tested.batch_of(2));
    const auto drop = std::ranges::find(tested.backend.log.forward.rbegin(), tested.backend.log.forward.rend(),
                                        random_purpose("drop"), &FakeCall::random_purpose);
    EXPECT_EQ(drop->place.step, step);
  }
}

TEST(NetworkInstance, DiscardsItsGraphsWhenItsMemoryMoves) {
  TestedInstance tested(two_blocks(), [](std::uint32_t) { return FakeTraits{}; });
  tested.instance->plan(2, LayerMode::training);
  tested.backend.captures = true;
  for (int pass = 0; pass < 3; ++pass) tested.expect_trains(tested.batch_of(2));
  tested.instance->plan(2000, LayerMode::evaluation);
  for (int pass = 0; pass < 3; ++pass) tested.expect_trains(tested.batch_of(2));
  EXPECT_EQ(tested.backend.graphs, 2);
}

}  // namespace
}  // namespace tutti
