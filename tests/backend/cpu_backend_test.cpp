#include "tutti/backend/backend.hpp"
#include "tutti/base/error.hpp"

#include "backend/network.hpp"
#include "support/lone_child.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace tutti::testing_support {
namespace {

std::vector<float> input_of(const NetworkCase& network) {
  return random_floats(network.sample.batch_of(network.batch).elements(), "input");
}

struct PassResult {
  std::vector<float> output;
  std::vector<std::vector<float>> gradients;
};

PassResult run(NetworkPlan& plan, const std::vector<float>& input) {
  PassResult result;
  result.output = plan.forward(input);
  result.gradients = plan.backward(random_floats(plan.activation(plan.layers()).shape.elements(), "output gradient"));
  return result;
}

void expect_same(const PassResult& got, const PassResult& expected) {
  EXPECT_TRUE(same_bits(got.output, expected.output));
  ASSERT_EQ(got.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < got.gradients.size(); ++i) {
    EXPECT_TRUE(same_bits(got.gradients[i], expected.gradients[i])) << i;
  }
}

TEST(CpuBackend, DescribesTheProcessor) {
  EXPECT_THAT(make_cpu_backend()->description(), ::testing::StartsWith("cpu: "));
}

TEST(CpuBackend, RefusesAComputeThreadWithoutThreads) {
  EXPECT_THROW(make_cpu_backend()->enter_compute_thread(0), Error);
}

TEST(CpuBackend, RefusesMoreThreadsThanTheLimitsOfTheProcessAllow) {
  const auto backend = make_cpu_backend();
  EXPECT_EQ(outcome_in_child([&] {
              backend->enter_compute_thread(1000);
              return true;
            }),
            refused);
}

TEST(CpuBackend, ConvertsActivationsOfEveryLayoutThereAndBack) {
  Device device(make_cpu_backend());
  const NetworkCase network = lenet_like("Conversion", 3, 28);
  const NetworkWeights weights(device, network);
  const NetworkPlan plan(device, network, weights);
  for (std::size_t i = 0; i <= plan.layers(); ++i) {
    const auto values = random_floats(plan.activation(i).shape.elements(), "converted");
    const Buffer buffer = device.backend().allocate(plan.activation(i).bytes);
    device.poison(buffer);
    device.set_values(plan.activation(i), buffer, values);
    EXPECT_TRUE(same_bits(device.values_of(plan.activation(i), buffer), values)) << i;
  }
}

TEST(CpuBackend, GivesTheSameBitsWithTwoThreadsInEveryRun) {
  Device device(make_cpu_backend(), 2);
  const NetworkCase network = lenet_like("TwoThreads", 16, 28);
  const NetworkWeights weights(device, network);
  NetworkPlan first(device, network, weights);
  NetworkPlan second(device, network, weights);
  const PassResult expected = run(first, input_of(network));
  for (int i = 0; i < 5; ++i) expect_same(run(i % 2 == 0 ? second : first, input_of(network)), expected);
}

TEST(CpuBackend, GivesTheSameBitsToConcurrentPartsThatShareWeights) {
  Device device(make_cpu_backend());
  const NetworkCase network = lenet_like("SideBySide", 8, 28);
  const NetworkWeights weights(device, network);
  NetworkPlan plan(device, network, weights);
  const PassResult expected = run(plan, input_of(network));

  std::vector<PassResult> results(3);
  {
    std::vector<std::jthread> parts;
    for (PassResult& result : results) {
      parts.emplace_back([&result, &device, &network, &weights] {
        Device part(device.share());
        NetworkPlan own(part, network, weights);
        for (int i = 0; i < 3; ++i) result = run(own, input_of(network));
      });
    }
  }
  for (const PassResult& result : results) expect_same(result, expected);
}

TEST(CpuBackend, RunsAPlanInAnotherThread) {
  Device device(make_cpu_backend());
  const NetworkCase network = lenet_like("OtherThread", 3, 28);
  const NetworkWeights weights(device, network);
  NetworkPlan plan(device, network, weights);
  const PassResult expected = run(plan, input_of(network));
  NetworkPlan moved(device, network, weights);
  PassResult got;
  std::jthread([&] {
    device.backend().enter_compute_thread(1);
    got = run(moved, input_of(network));
  }).join();
  expect_same(got, expected);
}

TEST(CpuBackend, HasRoomForEveryValueOfABatchOfAnyRank) {
  const auto backend = make_cpu_backend();
  for (const Shape& shape : {Shape{2, 3}, Shape{2, 3, 5}, Shape{2, 3, 4, 5}}) {
    EXPECT_EQ(backend->plain_activation(shape).bytes, static_cast<std::size_t>(shape.elements()) * sizeof(float))
        << shape.text();
  }
}

TEST(CpuBackend, ComputesTheOneWindowOfStridesBeyondTheImage) {
  Device device(make_cpu_backend());
  for (const std::int64_t groups : {1, 16}) {
    PassResult of_image;
    for (const std::int64_t stride : {std::int64_t{10}, std::int64_t{1} << 30}) {
      const Conv2dSpec spec{.channels = 16, .kernel = 3, .stride = stride, .padding = 1, .groups = groups};
      const NetworkCase network{"Strided", 2, {16, 8, 8}, {spec}};
      const NetworkWeights weights(device, network);
      NetworkPlan plan(device, network, weights);
      const PassResult result = run(plan, input_of(network));
      if (of_image.output.empty()) of_image = result;
      expect_same(result, of_image);
    }
  }
}

TEST(CpuBackend, RefusesWeightsThatAreMissingOrOfAnotherLayer) {
  Device device(make_cpu_backend());
  Backend& backend = device.backend();
  const ActivationSpec input = backend.plain_activation({2, 3, 8, 8});
  const Conv2dSpec spec{4, 3};
  const NetworkCase other{"Other", 2, {3, 8, 8}, {Conv2dSpec{5, 3}}};
  const NetworkWeights weights(device, other);
  EXPECT_THROW(backend.make_layer(spec, {.input = input}), Error);
  EXPECT_THROW(backend.make_layer(spec, {.input = input, .weights = weights.prepared(0)}), Error);
}

TEST(CpuBackend, RefusesMismatchesAndNamesTheSpec) {
  const auto backend = make_cpu_backend();
  EXPECT_THAT(thrown_by([&] {
                backend->make_layer(Pool2dSpec{Pooling::max, 9, 1}, {.input = backend->plain_activation({2, 3, 8, 8})});
              }).what(),
              mentions("max-pool2d: its window of 9x9"));
  EXPECT_THROW(backend->make_layer(Pool2dSpec{Pooling::max, 2, 2}, {.input = backend->plain_activation({0, 3, 8, 8})}),
               Error);
}

TEST(CpuBackend, RefusesToTrainAMaximumOfTooManyPlaces) {
  const auto backend = make_cpu_backend();
  const ActivationSpec input = backend->plain_activation({1, 1, 300, 300});
  const Pool2dSpec spec{Pooling::max, 257, 1};
  EXPECT_THROW(backend->make_layer(spec, {.input = input}), Error);
  EXPECT_NO_THROW(backend->make_layer(spec, {.input = input, .mode = LayerMode::evaluation}));
}

TEST(CpuBackend, RefusesAFormatOfAnotherShape) {
  const auto backend = make_cpu_backend();
  ActivationSpec input = backend->plain_activation({2, 16, 4, 4});
  input.shape = {2, 16, 8, 8};
  EXPECT_THROW(backend->make_layer(Pool2dSpec{Pooling::max, 2, 2}, {.input = input}), Error);
}

TEST(CpuBackend, ReportsTheSizeOfAFailedAllocation) {
  constexpr std::size_t kEverything = ~std::size_t{0};
  EXPECT_THAT(thrown_by([] { make_cpu_backend()->allocate(kEverything); }).what(),
              mentions(std::to_string(kEverything) + " bytes"));
}

TEST(CpuBackend, RefusesGradientsOfAPlanMadeForEvaluation) {
  Device device(make_cpu_backend());
  const NetworkCase network = lenet_like("Evaluation", 2, 18);
  const NetworkWeights weights(device, network);
  NetworkPlan plan(device, network, weights, {LayerMode::evaluation, false});
  plan.forward(input_of(network));
  for (std::size_t i = 0; i < plan.layers(); ++i) EXPECT_THROW(plan.backward_layer(i), Error) << i;
}

}  // namespace
}  // namespace tutti::testing_support
