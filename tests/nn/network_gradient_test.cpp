#include "tutti/base/error.hpp"
#include "tutti/nn/network_instance.hpp"

#include "reference/network.hpp"
#include "support/layer_examples.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

namespace tutti {
namespace {

using reference::Array;
using reference::NetworkBatch;
using reference::NetworkDouble;

constexpr int kClasses = 3;
constexpr BatchPosition kPlace{.seed = 11, .step = 4, .first_position = 0};

struct Case {
  const char* name;
  Shape image;
  std::vector<LayerNode> layers;
};

LayerSpec conv(std::int64_t channels, std::int64_t kernel = 3, std::int64_t stride = 1, bool bias = true) {
  return Conv2dSpec{.channels = channels, .kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = bias};
}
const LayerSpec kNorm = BatchNormSpec{};
const LayerSpec kNormRelu = BatchNormSpec{.relu = true};
const LayerSpec kNormAddRelu = BatchNormSpec{.add = true, .relu = true};

std::vector<LayerNode> identity_block(const std::string& name, const std::string& input, std::int64_t channels) {
  return {{name + ".conv1", conv(channels), input},
          {name + ".norm1", kNormRelu},
          {name + ".conv2", conv(channels)},
          {name + ".norm2", kNormAddRelu, "", input}};
}

std::vector<LayerNode> shortcut_block(const std::string& name, const std::string& input, std::int64_t channels) {
  return {{name + ".shortcut", conv(channels, 1, 2), input},
          {name + ".conv1", conv(channels, 3, 2), input},
          {name + ".norm1", kNormRelu},
          {name + ".conv2", conv(channels)},
          {name + ".norm2", kNormAddRelu, "", name + ".shortcut"}};
}

std::vector<LayerNode> bottleneck(const std::string& name, const std::string& input) {
  return {{name + ".shortcut", conv(16, 1, 2, false), input},
          {name + ".shortcut_norm", kNorm},
          {name + ".conv1", conv(4, 1, 1, false), input},
          {name + ".norm1", kNormRelu},
          {name + ".conv2", conv(4, 3, 2, false)},
          {name + ".norm2", kNormRelu},
          {name + ".conv3", conv(16, 1, 1, false)},
          {name + ".norm3", kNormAddRelu, "", name + ".shortcut_norm"}};
}

template <class... Lists>
std::vector<LayerNode> joined(const Lists&... lists) {
  std::vector<LayerNode> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  all.push_back({"pool", GlobalAveragePoolSpec{}});
  all.push_back({"head", LinearSpec{.units = kUnitsFromClasses}});
  return all;
}

std::vector<LayerNode> stem(std::int64_t channels) { return {{"stem.conv", conv(channels)}, {"stem.norm", kNormRelu}}; }

// Every function behind a convolution, and a sum of two that reads both their outputs.
std::vector<LayerNode> functions() {
  std::vector<LayerNode> layers;
  for (const ElementwiseSpec& spec : testing_support::function_examples()) {
    const std::string name(name_of(spec.function));
    layers.push_back({name + ".conv", conv(6)});
    layers.push_back({name, spec});
  }
  layers.push_back({"sum", AddSpec{}, "", layers[1].name});
  return layers;
}

std::vector<Case> cases() {
  return {
      {"IdentityBlock", {3, 6, 6}, joined(stem(8), identity_block("a", "stem.norm", 8))},
      {"ShortcutBlock", {3, 7, 7}, joined(stem(8), shortcut_block("a", "stem.norm", 20))},
      {"Bottleneck", {3, 8, 8}, joined(stem(8), bottleneck("a", "stem.norm"))},
      {"BlockOnTheImage", {8, 6, 6}, joined(identity_block("a", "image", 8))},
      {"SmallResnet",
       {1, 7, 7},
       joined(stem(4), identity_block("a", "stem.norm", 4), identity_block("b", "a.norm2", 4),
              shortcut_block("c", "b.norm2", 6), identity_block("d", "c.norm2", 6))},
      {"AddsApartFromNorms",
       {2, 5, 5},
       joined(std::vector<LayerNode>{{"a", conv(6)},
                                     {"b", conv(6)},
                                     {"sum", AddSpec{.relu = true}, "", "a"},
                                     {"c", kNorm},
                                     {"again", AddSpec{}, "", "sum"}})},
      {"DropoutAndPaddedPools",
       {2, 8, 8},
       joined(std::vector<LayerNode>{
           {"a", conv(6)},
           {"largest", Pool2dSpec{.pooling = Pooling::max, .kernel = 3, .stride = 2, .padding = 1}},
           {"drop", DropoutSpec{.rate = 0.3}},
           {"b", conv(4)}})},
      {"Functions", {2, 6, 6}, joined(functions())},
  };
}

// The cases without ReLUs and greatest values, whose gradients jump where bf16 rounds to the other side. None where the
// processor has no bf16.
std::vector<Case> smooth_cases_for_bf16() {
  try {
    make_cpu_backend(Precision::bf16);
  } catch (const Error& error) {
    if (error.source() == ErrorSource::usage) return {};
    throw;
  }
  std::vector<Case> smooth = cases();
  for (Case& network_case : smooth) {
    for (LayerNode& layer : network_case.layers) {
      if (auto* norm = std::get_if<BatchNormSpec>(&layer.spec)) norm->relu = false;
      if (auto* add = std::get_if<AddSpec>(&layer.spec)) add->relu = false;
      if (auto* pool = std::get_if<Pool2dSpec>(&layer.spec)) pool->pooling = Pooling::average;
      if (testing_support::has_jumping_gradient(layer.spec)) layer.spec = ElementwiseSpec{Function::silu};
    }
  }
  return smooth;
}

TEST(Statistics, AreUpdatedByTheMomentumOfTheirLayers) {
  const std::vector<LayerNode> layers{{"a", BatchNormSpec{.momentum = 0.25}},
                                      {"b", BatchNormSpec{.momentum = 0.5}},
                                      {"c", BatchNormSpec{.momentum = 0.5}},
                                      {"head", LinearSpec{.units = kUnitsFromClasses}}};
  const Network network({"norms", {}, layers}, Shape{2, 3, 3}, kClasses);
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  const ParameterLayout& layout = network.layout();
  std::vector<float> running(static_cast<std::size_t>(layout.block_elements()), 1.0f);
  std::vector<float> of_step(running.size(), 3.0f);
  const auto block = [&](std::vector<float>& values) {
    return Tensor{values.data(), Shape{layout.block_elements()}, ElementType::f32, MemorySpace::host};
  };
  const std::int64_t begin = layout.slice(network.layers()[1].parameters[2]).offset;
  update_statistics(*backend, *stream, layout, {block(running), block(of_step), begin});
  for (const ParameterSlice& slice : layout.slices()) {
    const bool left = !is_statistic(slice.kind) || slice.offset < begin;
    const float expected = left ? 1.0f : slice.name.starts_with("a/") ? 1.5f : 2.0f;
    EXPECT_EQ(running[static_cast<std::size_t>(slice.offset)], expected) << slice.name;
  }
}

// A network computed on the CPU, and by the reference in double precision.
class Twin {
 public:
  explicit Twin(const Case& network_case, Precision precision = Precision::fp32)
      : backend_(entered(make_cpu_backend(precision))),
        stream_(backend_->make_stream()),
        network_({network_case.name, Initializer::kaiming, network_case.layers}, network_case.image, kClasses),
        block_memory_(backend_->allocate(network_.layout().block_bytes())),
        gradient_memory_(backend_->allocate(network_.layout().block_bytes())) {
    initialize(network_, Initializer::kaiming, 5, *backend_, block());
    // Scales, shifts and biases off their starting values, so that each matters.
    for (const ParameterSlice& slice : network_.layout().trained()) {
      RandomSequence random(9, {.purpose = random_purpose(slice.name)});
      if (slice.kind == ParameterKind::weight) continue;
      for (float& value : host_f32(slice_of(block(), slice))) value += static_cast<float>(0.3 * random.normal());
    }
    weights_.emplace(network_, *backend_, block());
    weights_->refresh(*stream_);
    instance_.emplace(network_, *weights_, *backend_);
  }

  NetworkInstance& instance() { return *instance_; }
  const Network& network() const { return network_; }

  NetworkBatch batch(std::int64_t first, std::int64_t count, std::int64_t whole) const {
    NetworkBatch batch{.images = Array(network_.sample().batch_of(count)),
                       .labels = {},
                       .gradient_scale = 1.0 / static_cast<double>(whole),
                       .sample_fraction = static_cast<double>(count) / static_cast<double>(whole),
                       .place = kPlace};
    batch.place.first_position = static_cast<std::uint32_t>(first);
    const std::int64_t pixels = network_.sample().elements();
    for (std::int64_t i = 0; i < count; ++i) {
      RandomSequence random(2, {.item = static_cast<std::uint32_t>(first + i)});
      for (std::int64_t p = 0; p < pixels; ++p) batch.images[i * pixels + p] = static_cast<float>(random.normal());
      batch.labels.push_back(static_cast<std::int32_t>(random.below(kClasses)));
    }
    return batch;
  }

  // The sum over the batch.
  double loss(const NetworkBatch& batch, LayerMode mode) {
    const std::vector<float> pixels(batch.images.values.begin(), batch.images.values.end());
    std::vector<std::int32_t> labels = batch.labels;
    std::vector<std::int64_t> sums(LossSums::kFields);
    instance_->forward(*stream_, host(pixels, batch.images.shape), mode, batch.place);
    instance_->loss(*stream_, {labels.data(), Shape{batch.images.shape[0]}, ElementType::i32, MemorySpace::host},
                    static_cast<float>(batch.gradient_scale),
                    {sums.data(), Shape{LossSums::kFields}, ElementType::i64, MemorySpace::host});
    if (mode == LayerMode::training) {
      instance_->backward(*stream_, gradients(), static_cast<float>(batch.sample_fraction), [](std::int64_t) {});
    }
    return static_cast<double>(sums[0]) / LossSums::kLossScale;
  }

  std::vector<Array> weights() { return arrays(block()); }
  std::vector<Array> gradient_slices() { return arrays(gradients()); }

  void blend_statistics(float share) {
    for (const ParameterSlice& slice : network_.layout().statistics()) {
      backend_->blend(*stream_, slice_of(block(), slice), slice_of(gradients(), slice), share);
    }
    weights_->refresh(*stream_);
  }

 private:
  static std::unique_ptr<Backend> entered(std::unique_ptr<Backend> backend) {
    backend->enter_compute_thread(1);
    return backend;
  }
  static Tensor host(const std::vector<float>& values, const Shape& shape) {
    return {const_cast<float*>(values.data()), shape, ElementType::f32, MemorySpace::host};
  }
  Tensor block() const { return block_memory_.view(Shape{network_.layout().block_elements()}, ElementType::f32); }
  Tensor gradients() const {
    return gradient_memory_.view(Shape{network_.layout().block_elements()}, ElementType::f32);
  }
  std::vector<Array> arrays(const Tensor& from) {
    const auto& slices = network_.layout().slices();
    const auto values = read_slices(*backend_, *stream_, from, slices);
    std::vector<Array> all;
    for (std::size_t i = 0; i < slices.size(); ++i) all.emplace_back(slices[i].shape, std::span(values[i]));
    return all;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
  Network network_;
  Buffer block_memory_;
  Buffer gradient_memory_;
  std::optional<NetworkWeights> weights_;
  std::optional<NetworkInstance> instance_;
};

double norm(const Array& array) {
  double squares = 0;
  for (const double value : array.values) squares += value * value;
  return std::sqrt(squares);
}

// An error relative to the slice's norm and, since a bias before a norm has a gradient of rounding errors only, to the
// greatest norm.
struct Tolerance {
  double own;
  double greatest;
};
constexpr Tolerance kTight{1e-4, 1e-6};

void expect_close(const Network& network, const std::vector<Array>& got, const std::vector<Array>& expected,
                  const Tolerance& tolerance) {
  double greatest = 0;
  for (const Array& array : expected) greatest = std::max(greatest, norm(array));
  for (std::size_t s = 0; s < expected.size(); ++s) {
    Array difference = got[s];
    for (std::int64_t i = 0; i < difference.shape.elements(); ++i) difference[i] -= expected[s][i];
    EXPECT_LE(norm(difference), tolerance.own * norm(expected[s]) + tolerance.greatest * greatest)
        << network.layout().slices()[s].name;
  }
}

void expect_gradients_of_reference(Twin& twin, double loss_tolerance, const Tolerance& tolerance) {
  twin.instance().plan(5, LayerMode::training);
  const NetworkBatch batch = twin.batch(0, 5, 5);
  const auto weights = twin.weights();
  const NetworkDouble expected(twin.network(), weights);
  EXPECT_NEAR(twin.loss(batch, LayerMode::training) / expected.loss(batch, LayerMode::training), 1, loss_tolerance);
  expect_close(twin.network(), twin.gradient_slices(), expected.gradients(batch), tolerance);
}

class NetworkGradients : public testing::TestWithParam<Case> {};
class NetworkGradientsInBf16 : public testing::TestWithParam<Case> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NetworkGradientsInBf16);

TEST_P(NetworkGradients, AreThoseOfTheDoublePrecisionReference) {
  Twin twin(GetParam());
  expect_gradients_of_reference(twin, 1e-5, kTight);
}

TEST_P(NetworkGradientsInBf16, AreNearThoseOfTheDoublePrecisionReference) {
  Twin twin(GetParam(), Precision::bf16);
  expect_gradients_of_reference(twin, 5e-3, {2e-2, 5e-3});
}

// The directions are each slice's gradient and a random one.
TEST_P(NetworkGradients, OfTheReferenceAreItsFiniteDifferences) {
  const Twin twin(GetParam());
  auto weights = Twin(GetParam()).weights();
  const NetworkBatch batch = twin.batch(0, 5, 1);
  const NetworkDouble network(twin.network(), weights);
  const auto gradients = network.gradients(batch);
  const auto& slices = twin.network().layout().slices();
  double greatest = 0;
  for (std::size_t s = 0; s < slices.size(); ++s) {
    if (!is_statistic(slices[s].kind)) greatest = std::max(greatest, norm(gradients[s]));
  }
  for (std::size_t s = 0; s < twin.network().layout().trained().size(); ++s) {
    RandomSequence random(4, {.purpose = random_purpose(slices[s].name)});
    Array direction = gradients[s];
    for (double& value : direction.values) value = value / greatest + 0.1 * random.normal();
    const Array start = weights[s];
    const auto loss_at = [&](double distance) {
      for (std::int64_t i = 0; i < start.shape.elements(); ++i) weights[s][i] = start[i] + distance * direction[i];
      return network.loss(batch, LayerMode::training);
    };
    constexpr double kStep = 1e-5;
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    weights[s] = start;
    double expected = 0;
    for (std::int64_t i = 0; i < start.shape.elements(); ++i) expected += gradients[s][i] * direction[i];
    EXPECT_NEAR(slope, expected, 1e-4 * greatest * norm(direction)) << slices[s].name;
  }
}

TEST_P(NetworkGradients, OfPartsOfDifferentSizesAddUpToThoseOfTheBatch) {
  Twin twin(GetParam());
  for (const std::int64_t samples : {4, 3}) twin.instance().plan(samples, LayerMode::training);
  const auto weights = twin.weights();
  const NetworkDouble reference(twin.network(), weights);
  std::vector<Array> got;
  std::vector<Array> expected;
  const auto add_to = [](std::vector<Array>& sums, const std::vector<Array>& addends) {
    if (sums.empty())
      sums = addends;
    else
      for (std::size_t s = 0; s < sums.size(); ++s) {
        for (std::int64_t i = 0; i < sums[s].shape.elements(); ++i) sums[s][i] += addends[s][i];
      }
  };
  for (const auto& [first, count] : {std::pair{0, 3}, std::pair{3, 4}}) {
    const NetworkBatch part = twin.batch(first, count, 7);
    twin.loss(part, LayerMode::training);
    add_to(got, twin.gradient_slices());
    add_to(expected, reference.gradients(part));
  }
  expect_close(twin.network(), got, expected, kTight);
}

TEST_P(NetworkGradients, LeaveRunningStatisticsToEvaluation) {
  Twin twin(GetParam());
  twin.instance().plan(5, LayerMode::training);
  twin.instance().plan(4, LayerMode::evaluation);
  for (const std::int64_t first : {0, 5, 10}) {
    twin.loss(twin.batch(first, 5, 5), LayerMode::training);
    twin.blend_statistics(0.1f);
  }
  const NetworkBatch batch = twin.batch(20, 4, 4);
  const auto weights = twin.weights();
  const double expected = NetworkDouble(twin.network(), weights).loss(batch, LayerMode::evaluation);
  EXPECT_NEAR(twin.loss(batch, LayerMode::evaluation) / expected, 1, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Networks, NetworkGradients, testing::ValuesIn(cases()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });
INSTANTIATE_TEST_SUITE_P(Networks, NetworkGradientsInBf16, testing::ValuesIn(smooth_cases_for_bf16()),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

}  // namespace
}  // namespace tutti
