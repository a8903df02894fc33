#include "tutti/nn/network.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/nn/models.hpp"
#include "tutti/nn/part_context.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tutti {
namespace {

const Shape kImage{1, 28, 28};

TEST(Network, LenetHasTheTutorialsParameters) {
  const Network network(built_in_model("lenet"), kImage, 10);
  EXPECT_EQ(network.layout().parameters(), 129068);
  EXPECT_EQ(network.layers()[4].input, (Shape{50, 4, 4}));
  EXPECT_EQ(network.layers()[4].output, (Shape{128}));
}

TEST(Network, LaysItsParametersOutLastLayerFirst) {
  const Network network(built_in_model("lenet"), kImage, 10);
  const auto& slices = network.layout().slices();
  ASSERT_EQ(slices.size(), 8u);
  EXPECT_EQ(slices.front().name, "dense2/weight");
  EXPECT_EQ(slices[1].name, "dense2/bias");
  EXPECT_EQ(slices.back().name, "conv1/bias");
  EXPECT_EQ(slices.front().offset, 0);
  for (std::size_t i = 0; i + 1 < slices.size(); ++i) {
    EXPECT_EQ(slices[i + 1].offset % 16, 0);
    EXPECT_GE(slices[i + 1].offset, slices[i].offset + slices[i].elements());
  }
}

TEST(Network, NamesTheLayerThatDoesNotFit) {
  try {
    const Network network(built_in_model("lenet"), Shape{1, 8, 8}, 10);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_NE(std::string(error.what()).find("layer conv2 of the network lenet"), std::string::npos) << error.what();
  }
}

TEST(Network, RefusesAnEndThatIsNotOneValuePerClass) {
  NetworkSpec spec = built_in_model("linear");
  std::get<LinearSpec>(spec.layers.back().spec).units = 7;
  EXPECT_THROW(Network(spec, kImage, 10), Error);
}

class InitialValues : public testing::TestWithParam<Initializer> {};

TEST_P(InitialValues, HaveTheWrittenSpreadAndDependOnTheSeedAlone) {
  const Network network(built_in_model("mlp"), kImage, 10);
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  const Buffer memory = backend->allocate(network.layout().block_bytes());
  const Tensor block = memory.view(Shape{network.layout().block_elements()}, ElementType::f32);
  const auto digest_for = [&](std::uint64_t seed) {
    initialize(network, GetParam(), seed, *backend, block);
    return digest_of(*backend, *stream, block, network.layout());
  };
  const std::uint64_t first = digest_for(1);
  EXPECT_NE(digest_for(2), first);
  EXPECT_EQ(digest_for(1), first);

  const auto values = read_slices(*backend, *stream, block, network.layout());
  const auto& slices = network.layout().slices();
  for (std::size_t i = 0; i < slices.size(); ++i) {
    double squares = 0;
    for (const float value : values[i]) squares += double{value} * value;
    const double sigma = std::sqrt(squares / static_cast<double>(values[i].size()));
    if (slices[i].name == "dense1/weight") {
      const double expected = GetParam() == Initializer::normal   ? 0.01
                              : GetParam() == Initializer::xavier ? std::sqrt(2.0 / (784 + 256))
                                                                  : std::sqrt(2.0 / 784);
      EXPECT_NEAR(sigma / expected, 1, 0.01);
    }
    if (slices[i].kind == ParameterKind::bias) {
      EXPECT_EQ(sigma, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllKinds, InitialValues,
                         testing::Values(Initializer::normal, Initializer::xavier, Initializer::kaiming),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

TEST(InitialValues, OfLenetAreTheSameOnEveryMachine) {
  const Network network(built_in_model("lenet"), kImage, 10);
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  const Buffer memory = backend->allocate(network.layout().block_bytes());
  const Tensor block = memory.view(Shape{network.layout().block_elements()}, ElementType::f32);
  initialize(network, Initializer::xavier, 0, *backend, block);
  EXPECT_EQ(digest_text(digest_of(*backend, *stream, block, network.layout())), "72e154e9b60bf1bc");
}

// A directional derivative of the loss, by differences, against the gradient of the whole chain.
TEST(PartContext, GivesTheGradientOfTheWholeNetwork) {
  const Network network(built_in_model("lenet"), kImage, 10);
  const auto backend = make_cpu_backend();
  backend->enter_compute_thread(1);
  const auto stream = backend->make_stream();
  const Shape block_shape{network.layout().block_elements()};
  const Buffer weight_memory = backend->allocate(network.layout().block_bytes());
  const Buffer gradient_memory = backend->allocate(network.layout().block_bytes());
  const Tensor block = weight_memory.view(block_shape, ElementType::f32);
  const Tensor gradients = gradient_memory.view(block_shape, ElementType::f32);
  initialize(network, Initializer::xavier, 0, *backend, block);
  NetworkWeights weights(network, *backend, block);
  PartContext part(network, weights, *backend);
  constexpr std::int64_t kSamples = 5;
  part.plan(kSamples, LayerMode::training);

  std::vector<float> pixels(kSamples * 784);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i * 37 % 256) / 255.0f;
  std::vector<std::int32_t> labels{3, 1, 4, 1, 5};
  const Tensor images{pixels.data(), kImage.batch_of(kSamples), ElementType::f32, MemorySpace::host};
  const Tensor label_tensor{labels.data(), Shape{kSamples}, ElementType::i32, MemorySpace::host};
  std::vector<std::int64_t> sums(LossSums::kFigures);
  const Tensor sums_tensor{sums.data(), Shape{LossSums::kFigures}, ElementType::i64, MemorySpace::host};
  const auto loss = [&] {
    std::fill(sums.begin(), sums.end(), 0);
    weights.refresh(*stream);
    part.forward(*stream, images, LayerMode::training);
    part.loss(*stream, label_tensor, 1.0f / kSamples, sums_tensor);
    return static_cast<double>(sums[0]) / LossSums::kLossScale / kSamples;
  };

  std::vector<std::int64_t> finished;
  loss();
  part.backward(*stream, gradients, [&](std::int64_t final_elements) { finished.push_back(final_elements); });
  EXPECT_TRUE(std::is_sorted(finished.begin(), finished.end()));
  EXPECT_EQ(finished.back(), network.layout().block_elements());
  EXPECT_EQ(finished.size(), network.layers().size());

  const auto w = host_f32(block);
  const auto g = host_f32(gradients);
  double norm = 0;
  for (const float value : g) norm += double{value} * value;
  norm = std::sqrt(norm);
  const double step = 5e-4;
  std::vector<float> start(w.begin(), w.end());
  const auto loss_at = [&](double distance) {
    for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(start[i] + distance * g[i] / norm);
    return loss();
  };
  const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
  EXPECT_NEAR(slope / norm, 1, 5e-3);
}

}  // namespace
}  // namespace tutti
