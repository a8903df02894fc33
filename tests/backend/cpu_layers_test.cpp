#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"

#include "backend/cpu_layouts.hpp"
#include "backend/layout_contract.hpp"
#include "backend/small_network_contract.hpp"
#include "backend/special_values_contract.hpp"
#include "backend/whole_batch_contract.hpp"
#include "reference/conv2d.hpp"

#include <map>
#include <utility>

namespace tutti::testing_support {
namespace {

std::unique_ptr<Backend> make_cpu() { return make_cpu_backend(); }

std::unique_ptr<Backend> make_cpu_in_bf16() { return make_cpu_backend(Precision::bf16); }

const BackendUnderTest kCpu{"cpu", make_cpu, 1e-5, 1e-4, cpu_layouts(ElementType::f32)};

// Computes in fp32, but is handed activations in bf16.
const BackendUnderTest kCpuWithBf16Activations{"cpu with bf16 activations", make_cpu, 1e-2, 2e-2,
                                               cpu_layouts(ElementType::bf16)};

INSTANTIATE_TEST_SUITE_P(Cpu, LayerContract,
                         ::testing::Combine(::testing::Values(kCpu), ::testing::ValuesIn(all_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cpu, SmallNetworkContract,
                         ::testing::Combine(::testing::Values(kCpu), ::testing::ValuesIn(small_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cpu, LayoutContract,
                         ::testing::Combine(::testing::Values(kCpu), ::testing::ValuesIn(layout_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(CpuWithBf16Activations, LayoutContract,
                         ::testing::Combine(::testing::Values(kCpuWithBf16Activations),
                                            ::testing::ValuesIn(own_layer_layout_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cpu, SpecialValuesContract, ::testing::Values(kCpu));
INSTANTIATE_TEST_SUITE_P(Cpu, WholeBatchContract,
                         ::testing::Combine(::testing::Values(kCpu), ::testing::ValuesIn(whole_batch_cases())),
                         layer_contract_name);

void expect_equal_bits_with_any_threads(const BackendUnderTest& backend, const NetworkCase& network) {
  const LayerSpec& spec = network.layers[0];
  const Shape input = network.sample.batch_of(network.batch);
  const auto values = random_floats(input.elements(), "values");
  for (const LayoutUnderTest& layout : backend.layouts) {
    const ActivationSpec activation = layout.of(input);
    const ActivationSpec residual = takes_residual(spec) ? activation : ActivationSpec{};
    std::vector<std::vector<float>> expected;
    for (const int threads : {1, 2, 5}) {
      Device device(backend.make(), threads);
      const NetworkWeights weights(device, network);
      SingleLayer layer(device, spec, {.input = activation, .residual = residual}, weights);
      const auto gradient = random_floats(layer.output().shape.elements(), "gradient");
      for (int again = 0; again < 3; ++again) {
        std::vector<std::vector<float>> got{layer.forward(values, values)};
        const SingleGradients gradients = layer.backward({gradient, gradient});
        got.insert(got.end(), {gradients.input, gradients.residual});
        got.insert(got.end(), gradients.parameters.begin(), gradients.parameters.end());
        if (expected.empty()) expected = got;
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(same_bits(got[i], expected[i])) << network.name << " in " << layout.name << ", values " << i;
        }
      }
    }
  }
}

TEST(CpuLayers, NormGivesTheSameBitsWithAnyNumberOfThreads) {
  expect_equal_bits_with_any_threads(kCpu, {"Shared", 12, {40, 30, 20}, {BatchNormSpec{kAdd, kRelu}}});
}

TEST(CpuLayers, ConvolutionsAndLinearLayersGiveTheSameBitsWithAnyNumberOfThreads) {
  const BackendUnderTest bf16{"cpu bf16", make_cpu_in_bf16, 1e-2, 2e-2, cpu_layouts(ElementType::bf16)};
  for (const NetworkCase& network : own_image_cases()) {
    expect_equal_bits_with_any_threads(kCpu, network);
    expect_equal_bits_with_any_threads(bf16, network);
  }
}

// The greatest error of an output, relative to their root mean square, for inputs as a ReLU leaves them.
double greatest_error(const BackendUnderTest& backend, const NetworkCase& network) {
  Device device(backend.make());
  const NetworkWeights weights(device, network);
  const Shape input = network.sample.batch_of(network.batch);
  auto values = random_floats(input.elements(), "values");
  for (float& value : values) value = std::max(value, 0.0f);
  const auto got = SingleLayer(device, network.layers[0], {.input = device.backend().plain_activation(input)}, weights)
                       .forward(values, {});
  const reference::Array expected =
      reference::forward(std::get<Conv2dSpec>(network.layers[0]), {input, values},
                         std::vector{reference::Array(weights.tensors(0)[0].shape, weights.values(0)[0])});
  double greatest = 0;
  double squares = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    greatest = std::max(greatest, std::abs(static_cast<double>(got[i]) - expected.values[i]));
    squares += expected.values[i] * expected.values[i];
  }
  return greatest / std::sqrt(squares / static_cast<double>(got.size()));
}

// With the points 1 and 2, the error was 3e-5.
TEST(CpuLayers, ConvolutionsByTilesLoseLittleToRounding) {
  const NetworkCase network{"Rounded", 4, {256, 8, 8}, {Conv2dSpec{32, 3, 1, 1, kNoBias, kNoRelu}}};
  EXPECT_LT(greatest_error(kCpu, network), 1e-5);
}

// Of memory as it is.
std::uint64_t digest_of_memory(Device& device, const std::string& name, const Buffer& memory, std::size_t bytes) {
  return digest(name, device.download<std::uint8_t>(memory.view({static_cast<std::int64_t>(bytes)}, ElementType::u8)));
}

std::uint64_t digest_in_all_layouts(const BackendUnderTest& backend, const NetworkCase& network) {
  const LayerSpec& spec = network.layers[0];
  const Shape input = network.sample.batch_of(network.batch);
  const auto values = random_floats(input.elements(), "values");
  std::uint64_t sum = 0;
  for (const LayoutUnderTest& layout : backend.layouts) {
    const ActivationSpec activation = layout.of(input);
    Device device(backend.make());
    const NetworkWeights weights(device, network);
    SingleLayer layer(device, spec,
                      {.input = activation, .residual = takes_residual(spec) ? activation : ActivationSpec{}}, weights);
    const std::int64_t outputs = layer.output().shape.elements();
    const std::string name = network.name + layout.name;
    layer.forward(values, values);
    sum += digest_of_memory(device, name + "output", layer.output_memory(), layer.output().bytes);
    const SingleGradients gradients = layer.backward({random_floats(outputs, "one"), random_floats(outputs, "other")});
    sum += digest_of_memory(device, name + "input", layer.input_gradient_memory(), activation.bytes);
    sum += digest(name + "residual", gradients.residual);
    for (const auto& parameter : gradients.parameters) sum += digest(name + "parameter", parameter);
  }
  return sum;
}

// This program also runs with the instruction sets of older processors, and must come to the same digests.
TEST(CpuLayers, OfOurOwnGiveTheSameBitsWithAllInstructionSets) {
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> sums;
  for (const NetworkCase& network : own_layer_layout_cases()) {
    auto& [f32, bf16] = sums[std::string(type_name(network.layers[0]))];
    f32 += digest_in_all_layouts(kCpu, network);
    bf16 += digest_in_all_layouts(kCpuWithBf16Activations, network);
  }
  // For each type of layer, with activations in f32 and in bf16.
  using DigestsOfTypes = std::map<std::string, std::pair<std::string, std::string>>;
  DigestsOfTypes got;
  for (const auto& [type, sum] : sums) got[type] = {digest_text(sum.first), digest_text(sum.second)};
  EXPECT_EQ(got, (DigestsOfTypes{{"add", {"07d5ae335458b7a4", "53140a5e77f239e6"}},
                                 {"batch-norm", {"901789f0155f5e58", "ae777caae4c27eb5"}},
                                 {"dropout", {"e6d24fd0803e8ff9", "1e9fd6cfee79e678"}},
                                 {"gelu", {"c9269c3793dd2094", "a54fcb5cd93bb829"}},
                                 {"global-average-pool", {"f384abd1dc91c300", "a24d67fe9a86d145"}},
                                 {"relu6", {"f64d99fd10b12890", "ee7c5c6b142bb079"}},
                                 {"scale", {"806641769324a3a7", "3ddb8e4f7301c13d"}},
                                 {"silu", {"b3d7adda8d863820", "b4675fe8242cad6c"}}}));
}

}  // namespace
}  // namespace tutti::testing_support
