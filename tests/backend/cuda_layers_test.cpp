#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/format.hpp"
#include "backend/layout_contract.hpp"
#include "backend/small_network_contract.hpp"
#include "backend/special_values_contract.hpp"
#include "backend/whole_batch_contract.hpp"

namespace tutti::testing_support {
namespace {

// Plans are not measured, so that they are the same in every case.
std::unique_ptr<Backend> make_cuda(Precision precision) {
  return tutti_cuda_library().make_backend({.precision = precision, .search_plans = false});
}
std::unique_ptr<Backend> make_cuda_in_fp32() { return make_cuda(Precision::fp32); }
std::unique_ptr<Backend> make_cuda_in_bf16() { return make_cuda(Precision::bf16); }

LayoutUnderTest within(ElementType type) {
  return {"within", [type](const Shape& shape) { return cuda::activation_of(shape, type); }};
}

const BackendUnderTest kCuda{
    "cuda", make_cuda_in_fp32, 1e-5, 1e-4, {{"plain", cuda::plain_activation_of}, within(ElementType::f32)}};
const BackendUnderTest kCudaInBf16{"cuda in bf16", make_cuda_in_bf16, 1e-2, 2e-2, {within(ElementType::bf16)}};

// Rows of more packs than a warp reads at once, in more chunks than one.
std::vector<NetworkCase> wide_cases() {
  return {{"NormOfManyChannels", 20, {523, 4, 4}, {BatchNormSpec{kAdd, kRelu}}},
          {"MaxPoolOfAWideWindow", 2, {3, 20, 21}, {Pool2dSpec{Pooling::max, 18, 2, 1}}}};
}

// All cases but max-pools of a plain image: rounding it first makes different values equal.
std::vector<NetworkCase> coarse_cases() {
  std::vector<NetworkCase> cases = all_cases();
  std::erase_if(cases, [](const NetworkCase& network) {
    const auto* const pool = std::get_if<Pool2dSpec>(&network.layers[0]);
    return pool != nullptr && pool->pooling == Pooling::max;
  });
  return cases;
}

template <class... Lists>
std::vector<NetworkCase> joined(const Lists&... lists) {
  std::vector<NetworkCase> all;
  (all.insert(all.end(), lists.begin(), lists.end()), ...);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cuda, LayerContract,
                         ::testing::Combine(::testing::Values(kCuda), ::testing::ValuesIn(all_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SmallNetworkContract,
                         ::testing::Combine(::testing::Values(kCuda), ::testing::ValuesIn(small_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cuda, LayoutContract,
                         ::testing::Combine(::testing::Values(kCuda),
                                            ::testing::ValuesIn(joined(layout_cases(), wide_cases()))),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(Cuda, SpecialValuesContract, ::testing::Values(kCuda));
INSTANTIATE_TEST_SUITE_P(Cuda, WholeBatchContract,
                         ::testing::Combine(::testing::Values(kCuda), ::testing::ValuesIn(whole_batch_cases())),
                         layer_contract_name);

INSTANTIATE_TEST_SUITE_P(CudaInBf16, LayerContract,
                         ::testing::Combine(::testing::Values(kCudaInBf16), ::testing::ValuesIn(coarse_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(CudaInBf16, SmallNetworkContract,
                         ::testing::Combine(::testing::Values(kCudaInBf16), ::testing::ValuesIn(cleared_small_cases())),
                         layer_contract_name);
INSTANTIATE_TEST_SUITE_P(CudaInBf16, LayoutContract,
                         ::testing::Combine(::testing::Values(kCudaInBf16),
                                            ::testing::ValuesIn(joined(layout_cases(), wide_cases()))),
                         layer_contract_name);

// A layer alone, with a batch of random values.
struct LayerOfCuda {
  LayerOfCuda(const BackendUnderTest& backend, const LayerSpec& spec, const Shape& batch)
      : device(backend.make()),
        activation(backend.layouts.back().of(batch)),
        network{"Alone", batch[0], batch.without_first(), {spec}},
        weights(device, network),
        layer(device, spec, {.input = activation, .residual = takes_residual(spec) ? activation : ActivationSpec{}},
              weights),
        values(random_floats(batch.elements(), "values")) {}

  // Whether memory for the activation has values that are no numbers, or not zero, where channels are padded.
  bool pads_with_zeros(const Buffer& buffer) {
    const bool coarse = cuda::format_of(activation).type() == ElementType::bf16;
    const std::int64_t channels = activation.shape[1];
    const std::int64_t padded = cuda::layout_of(activation).padded_channels;
    const auto bytes =
        device.download<std::uint8_t>(buffer.view({static_cast<std::int64_t>(activation.bytes)}, ElementType::u8));
    const std::size_t of_value = coarse ? 2 : 4;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const auto channel = static_cast<std::int64_t>(i / of_value) % padded;
      const bool sign = i % of_value == of_value - 1 && bytes[i] == 0x80;
      if (channel >= channels && bytes[i] != 0 && !sign) return false;
    }
    return true;
  }

  Device device;
  ActivationSpec activation;
  NetworkCase network;
  NetworkWeights weights;
  SingleLayer layer;
  std::vector<float> values;
};

class CudaLayers : public ::testing::TestWithParam<BackendUnderTest> {};
INSTANTIATE_TEST_SUITE_P(All, CudaLayers, ::testing::Values(kCuda, kCudaInBf16));

TEST_P(CudaLayers, KeepZerosWhereChannelsAreOnlyPadding) {
  std::vector<LayerSpec> specs = layers_that_keep_shapes();
  specs.insert(specs.end(),
               {BatchNormSpec{}, Pool2dSpec{Pooling::max, 3, 1, 1}, Pool2dSpec{Pooling::average, 3, 1, 1}});
  for (const LayerSpec& spec : specs) {
    SCOPED_TRACE(type_name(spec));
    LayerOfCuda alone(GetParam(), spec, {2, 13, 5, 3});
    alone.layer.forward(alone.values, alone.values);
    alone.layer.backward({alone.values, alone.values});
    EXPECT_TRUE(alone.pads_with_zeros(alone.layer.output_memory()));
    EXPECT_TRUE(alone.pads_with_zeros(alone.layer.input_gradient_memory()));
  }
}

TEST_P(CudaLayers, AddUpAnyNumberOfGradients) {
  LayerOfCuda alone(GetParam(), AddSpec{}, {2, 13, 5, 3});
  alone.layer.forward(alone.values, alone.values);
  for (std::size_t count = 4; count < 8; ++count) {
    std::vector<double> sum;
    for (const float value : alone.values) sum.push_back(static_cast<double>(count) * value);
    const std::vector<std::vector<float>> gradients(count, alone.values);
    EXPECT_TRUE(close(alone.layer.backward(gradients).input, sum, GetParam().tolerance)) << count;
  }
}

TEST(CudaWeights, ArePackedForAPlanThatIsMadeAfterTheirRefresh) {
  Device device(make_cuda_in_fp32());
  Backend& backend = device.backend();
  const LinearSpec spec{.units = 40};
  const Shape shape{40, 600};
  const auto bytes = static_cast<std::size_t>(shape.elements()) * sizeof(float);
  const Buffer staging = backend.allocate_staging(bytes);
  const Tensor staged = staging.view(shape, ElementType::f32);
  const Buffer memory = backend.allocate(bytes);
  const Buffer bias = backend.allocate(40 * sizeof(float));
  const std::vector<Tensor> values{memory.view(shape, ElementType::f32), bias.view(Shape{40}, ElementType::f32)};
  const ActivationSpec activation = within(ElementType::f32).of({1, 600});
  const Buffer input = device.backend().allocate(activation.bytes);
  device.set_values(activation, input, std::vector<float>(600, 1.0f));
  for (int i = 1; i <= 20; ++i) {
    std::ranges::fill(host_f32(staged), static_cast<float>(i));
    const auto weights = backend.make_weights(spec, values);
    backend.copy(device.stream(), values[0], staged);
    weights->refresh(device.stream());
    const auto layer = backend.make_layer(spec, {.input = activation, .weights = weights.get()});
    const Buffer output = backend.allocate(layer->output().bytes);
    layer->forward(device.stream(), {.input = input.data(), .output = output.data()});
    EXPECT_EQ(device.values_of(layer->output(), output), std::vector<float>(40, 600.0f * static_cast<float>(i)));
  }
}

TEST(CudaDropout, InAGraphDropsOtherValuesInEveryStep) {
  Device device(make_cuda_in_fp32());
  const ActivationSpec activation = within(ElementType::f32).of({4, 20, 3, 3});
  const auto layer = device.backend().make_layer(DropoutSpec{0.5}, {.input = activation, .random_purpose = kPurpose});
  const Buffer input = device.backend().allocate(activation.bytes);
  const Buffer output = device.backend().allocate(activation.bytes);
  const auto values = random_floats(activation.shape.elements(), "values");
  device.set_values(activation, input, values);
  const auto forward = [&] { layer->forward(device.stream(), {.input = input.data(), .output = output.data()}); };
  forward();
  const auto graph = device.backend().capture(device.stream(), forward);
  for (std::uint32_t step = 0; step < 3; ++step) {
    const BatchPosition place{.seed = 3, .step = step, .first_position = 8};
    layer->set_batch_position(device.stream(), place);
    graph->launch(device.stream());
    const auto got = device.values_of(activation, output);
    const auto factors = reference::dropout_factors({0.5}, activation.shape, place, kPurpose);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_FLOAT_EQ(got[i], values[i] * static_cast<float>(factors.values[i])) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace tutti::testing_support
