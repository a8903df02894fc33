#include "tutti/base/digest.hpp"
#include "tutti/nn/model_file.hpp"
#include "tutti/nn/network.hpp"

#include "nn/fake_backend.hpp"

#include <cmath>
#include <map>

namespace tutti {
namespace {

using testing_support::FakeBackend;

class Weights {
 public:
  Weights(const NetworkSpec& spec, const Shape& image)
      : network_(spec, image, 10), memory_(backend_.allocate(network_.layout().block_bytes())) {}

  Network& network() { return network_; }
  void draw(Initializer initializer, std::uint64_t seed) { initialize(network_, initializer, seed, backend_, block()); }
  std::uint64_t digest() {
    const auto stream = backend_.make_stream();
    return digest_of(backend_, *stream, block(), network_.layout().trained());
  }
  std::map<std::string, std::vector<float>> values() {
    const auto stream = backend_.make_stream();
    const auto& slices = network_.layout().slices();
    const auto all = read_slices(backend_, *stream, block(), slices);
    std::map<std::string, std::vector<float>> named;
    for (std::size_t i = 0; i < all.size(); ++i) named[slices[i].name] = all[i];
    return named;
  }

 private:
  Tensor block() const { return memory_.view(Shape{network_.layout().block_elements()}, ElementType::f32); }

  FakeBackend backend_;
  Network network_;
  Buffer memory_;
};

struct Moments {
  double mean = 0;
  double sigma = 0;
  double greatest = 0;
};

Moments moments_of(const std::vector<float>& values) {
  const auto count = static_cast<double>(values.size());
  Moments moments;
  for (const float value : values) moments.mean += value / count;
  for (const float value : values) {
    moments.sigma += std::pow(value - moments.mean, 2) / count;
    moments.greatest = std::max(moments.greatest, std::abs(double{value}));
  }
  moments.sigma = std::sqrt(moments.sigma);
  return moments;
}

struct InitializerCase {
  Initializer initializer;
  double dense_sigma;        // of 784 inputs and 256 units
  double convolution_sigma;  // of 20 x 5 x 5 inputs and 50 x 5 x 5 outputs
  const char* lenet_digest;  // for seed 0
};

class InitialValues : public testing::TestWithParam<InitializerCase> {};

TEST_P(InitialValues, HaveTheDocumentedDeviation) {
  const auto expect = [&](Weights& weights, const std::string& slice, double sigma) {
    weights.draw(GetParam().initializer, 1);
    const std::vector<float> values = weights.values().at(slice);
    const Moments moments = moments_of(values);
    EXPECT_NEAR(moments.mean / sigma, 0, 4 / std::sqrt(static_cast<double>(values.size())));
    EXPECT_NEAR(moments.sigma / sigma, 1, 0.02);
    const bool uniform =
        GetParam().initializer == Initializer::xavier || GetParam().initializer == Initializer::uniform;
    EXPECT_EQ(moments.greatest / sigma > std::sqrt(3.0) + 1e-6, !uniform);
  };
  Weights dense(built_in_model("mlp"), Shape{1, 28, 28});
  expect(dense, "dense1/weight", GetParam().dense_sigma);
  Weights convolution(built_in_model("lenet"), Shape{1, 28, 28});
  expect(convolution, "conv2/weight", GetParam().convolution_sigma);
}

TEST_P(InitialValues, AreTheSameOnEveryMachineAndDependOnTheSeed) {
  Weights weights(built_in_model("lenet"), Shape{1, 28, 28});
  weights.draw(GetParam().initializer, 1);
  EXPECT_NE(digest_text(weights.digest()), GetParam().lenet_digest);
  weights.draw(GetParam().initializer, 0);
  EXPECT_EQ(digest_text(weights.digest()), GetParam().lenet_digest);
}

INSTANTIATE_TEST_SUITE_P(AllKinds, InitialValues,
                         testing::Values(InitializerCase{Initializer::normal, 0.01, 0.01, "6a3b84c41411519b"},
                                         InitializerCase{Initializer::xavier, std::sqrt(2.0 / (784 + 256)),
                                                         std::sqrt(2.0 / ((20 + 50) * 25)), "72e154e9b60bf1bc"},
                                         InitializerCase{Initializer::kaiming, std::sqrt(2.0 / 784),
                                                         std::sqrt(2.0 / (20 * 25)), "2b5aa6568797a21b"},
                                         InitializerCase{Initializer::uniform, std::sqrt(1.0 / (3 * 784)),
                                                         std::sqrt(1.0 / (3 * 20 * 25)), "b454ff7e21c4faee"}),
                         [](const auto& param_info) { return std::string(name_of(param_info.param.initializer)); });

TEST(InitialValues, OfNormsAndBiasesAreConstants) {
  Weights weights(
      {"net", Initializer::xavier, {{"norm", BatchNormSpec{}}, {"head", LinearSpec{.units = kUnitsFromClasses}}}},
      Shape{2, 4, 4});
  weights.draw(Initializer::xavier, 0);
  const auto values = weights.values();
  EXPECT_EQ(values.at("norm/scale"), (std::vector<float>{1, 1}));
  EXPECT_EQ(values.at("norm/shift"), (std::vector<float>{0, 0}));
  EXPECT_EQ(values.at("norm/mean"), (std::vector<float>{0, 0}));
  EXPECT_EQ(values.at("norm/variance"), (std::vector<float>{1, 1}));
  EXPECT_EQ(values.at("head/bias"), std::vector<float>(10));
}

TEST(InitialValues, OfALayerCopyItsInputsOrAreZeroOrGiven) {
  const Conv2dSpec convolution{.channels = 6, .kernel = 3, .padding = 1};
  Conv2dSpec grouped = convolution;
  grouped.groups = 2;
  NetworkSpec spec{"net",
                   Initializer::kaiming,
                   {{"white", convolution},
                    {"a", convolution},
                    {"b", grouped},
                    {"c", convolution},
                    {"head", LinearSpec{.units = kUnitsFromClasses}}}};
  const auto values = [&] {
    Weights weights(spec, Shape{4, 6, 6});
    weights.network().set_whitening(0, std::vector<float>(6 * 4 * 9, 0.5f));
    weights.draw(Initializer::kaiming, 3);
    return weights.values();
  };
  const auto drawn = values();
  const LayerInitializer own[] = {LayerInitializer::whitening, LayerInitializer::dirac, LayerInitializer::dirac,
                                  LayerInitializer::zero, LayerInitializer::dirac};
  for (std::size_t i = 0; i < spec.layers.size(); ++i) spec.layers[i].initializer = own[i];
  const auto got = values();
  EXPECT_EQ(got.at("white/weight"), std::vector<float>(6 * 4 * 9, 0.5f));
  EXPECT_EQ(got.at("c/weight"), std::vector<float>(6 * 6 * 9));
  // By name: filters of as many inputs, the outputs of a group, values of a filter, and the one in its center.
  const auto expect_copies = [&](const std::string& name, std::size_t inputs, std::size_t group, std::size_t window) {
    const auto& weight = got.at(name);
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const std::size_t output = i / (inputs * window) % group;
      const bool is_copied = i % (inputs * window) == output * window + window / 2;
      ASSERT_EQ(weight[i], output < inputs ? (is_copied ? 1.0f : 0.0f) : drawn.at(name)[i]) << name << " " << i;
    }
  };
  expect_copies("a/weight", 6, 6, 9);
  expect_copies("b/weight", 3, 3, 9);
  expect_copies("head/weight", 6 * 36, 10, 1);
}

TEST(InitialValues, DependOnTheNameAndNotOnThePositionOfTheLayer) {
  const LayerSpec convolution = Conv2dSpec{.channels = 4, .kernel = 3, .padding = 1};
  const auto values = [&](std::vector<LayerNode> layers) {
    layers.push_back({"head", LinearSpec{.units = kUnitsFromClasses}});
    Weights weights({"net", Initializer::xavier, layers}, Shape{4, 6, 6});
    weights.draw(Initializer::kaiming, 3);
    return weights.values();
  };
  const auto two = values({{"a", convolution}, {"b", convolution}});
  const auto swapped = values({{"b", convolution}, {"a", convolution}});
  EXPECT_EQ(two, swapped);
  EXPECT_NE(two.at("a/weight"), two.at("b/weight"));
}

}  // namespace
}  // namespace tutti
