#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/error.hpp"

#include "backend/cuda/format.hpp"
#include "backend/optimizer_contract.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tutti::testing_support {
namespace {

std::unique_ptr<Backend> make_cuda() { return tutti_cuda_library().make_backend({}); }

INSTANTIATE_TEST_SUITE_P(Cuda, FlatContract, ::testing::Values(FlatBackend{"cuda", make_cuda}));

// Runs the same operations on the CPU and on a GPU.
class CudaFlat : public ::testing::Test {
 protected:
  // Runs on tensors of these values, and returns their final values.
  using Floats = std::vector<std::vector<float>>;
  using Operation = std::function<void(Device& device, std::span<const Tensor> tensors)>;

  // Each tensor starts `offset` elements behind a boundary of 64 bytes.
  static Floats left_by(Device& device, const Floats& values, std::int64_t offset, const Operation& operation) {
    std::vector<Buffer> buffers;
    std::vector<Tensor> tensors;
    for (const auto& each : values) {
      const auto count = static_cast<std::int64_t>(each.size());
      buffers.push_back(device.backend().allocate((each.size() + static_cast<std::size_t>(offset)) * sizeof(float)));
      tensors.push_back(
          buffers.back().view({count}, ElementType::f32, static_cast<std::size_t>(offset) * sizeof(float)));
      device.upload(tensors.back(), each);
    }
    operation(device, tensors);
    Floats left;
    for (const Tensor& tensor : tensors) left.push_back(device.download<float>(tensor));
    return left;
  }

  // `tensors` of each size with random values, the last ones of one element.
  void expect_equal_bits(int tensors, int factors, const Operation& operation) {
    for (const std::int64_t size : {1, 3, 16, 1000, 4099, 70001}) {
      Floats values;
      for (int i = 0; i < tensors; ++i) values.push_back(random_floats(size, "tensor " + std::to_string(i), 2));
      for (int i = 0; i < factors; ++i) values.push_back(random_floats(1, "factor " + std::to_string(i)));
      const Floats expected = left_by(cpu_, values, 0, operation);
      for (const std::int64_t offset : {0, 1, 4}) {
        const Floats got = left_by(cuda_, values, offset, operation);
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(same_bits(got[i], expected[i])) << "tensor " << i << " of " << size << " at " << offset;
        }
      }
    }
  }

  Device cpu_{make_cpu_backend()};
  Device cuda_{make_cuda()};
};

TEST_F(CudaFlat, ReportsTheSizeOfAFailedAllocationAndStaysUsable) {
  const Error error = thrown_by([&] { cuda_.backend().allocate(std::size_t{1} << 50); });
  const std::string message = error.what();
  EXPECT_THAT(message, mentions("no room for 1073741824.0 MiB more", "--batch-size"));
  const Floats left = left_by(cuda_, {{1, 2}, {3, 4}}, 0, [](Device& device, std::span<const Tensor> tensors) {
    device.backend().add(device.stream(), tensors[0], tensors[1]);
  });
  EXPECT_EQ(left[0], (std::vector<float>{4, 6}));
}

TEST_F(CudaFlat, AddsAndBlendsToTheCpusBits) {
  expect_equal_bits(2, 0, [](Device& device, std::span<const Tensor> tensors) {
    device.backend().add(device.stream(), tensors[0], tensors[1]);
    device.backend().blend(device.stream(), tensors[1], tensors[0], 0.1f);
  });
}

TEST_F(CudaFlat, StepsToTheCpusBits) {
  for (const bool nesterov : {false, true}) {
    expect_equal_bits(3, 2, [nesterov](Device& device, std::span<const Tensor> tensors) {
      for (int step = 0; step < 2; ++step) {
        device.backend().sgd_step(
            device.stream(), {tensors[0], tensors[1], tensors[2], 0.1f, 0.9f, 0.01f, nesterov, tensors[3], tensors[4]});
      }
      device.backend().sgd_step(device.stream(), {tensors[0], tensors[1], {}, 0.1f, 0, 0.01f});
    });
  }
}

TEST_F(CudaFlat, AdamWStepsToTheCpusBits) {
  expect_equal_bits(2, 1, [](Device& device, std::span<const Tensor> tensors) {
    const auto size = static_cast<std::size_t>(tensors[0].elements());
    const Buffer first = device.buffer_of(std::vector<float>(size, 0.0f));
    const Buffer second = device.buffer_of(std::vector<float>(size, 0.0f));
    for (std::int64_t step = 1; step < 4; ++step) {
      device.backend().adamw_step(device.stream(), {.weights = tensors[0],
                                                    .gradients = tensors[1],
                                                    .first_moment = first.view(tensors[0].shape, ElementType::f32),
                                                    .second_moment = second.view(tensors[0].shape, ElementType::f32),
                                                    .learning_rate = 0.01,
                                                    .weight_decay = 0.1,
                                                    .step = step,
                                                    .gradient_factor = tensors[2]});
    }
    device.stream().synchronize();
  });
}

// There are more tensors than one launch takes.
TEST_F(CudaFlat, NormsAndTheirFactorsHaveTheCpusBits) {
  Floats values;
  for (int i = 0; i < 150; ++i) values.push_back(random_floats(1 + i * i, "norm " + std::to_string(i), 100));
  values.push_back(random_floats(3 * 4096 * 17 + 5, "long norm"));
  const auto count = static_cast<std::int64_t>(values.size());
  values.push_back(std::vector<float>(static_cast<std::size_t>(3 * count) + 1));  // factors, then sums as they lie
  const auto operation = [count](Device& device, std::span<const Tensor> tensors) {
    const Buffer memory = device.backend().allocate(static_cast<std::size_t>(2 * count) * sizeof(double));
    const Tensor squares = memory.view({count}, ElementType::f64);
    const Tensor rotated = memory.view({count}, ElementType::f64, static_cast<std::size_t>(count) * sizeof(double));
    std::vector<Tensor> all(tensors.begin(), tensors.end() - 1);
    device.backend().sum_squares(device.stream(), all, squares);
    std::ranges::rotate(all, all.begin() + 1);
    device.backend().sum_squares(device.stream(), all, rotated);
    const MemorySpace space = tensors.back().space;
    auto* const results = static_cast<float*>(tensors.back().data);
    const Tensor clip{results, {1}, ElementType::f32, space};
    device.backend().clip_factor(device.stream(), squares, 1000, clip);
    device.backend().trust_factors(device.stream(), {.weight_squares = squares,
                                                     .gradient_squares = rotated,
                                                     .gradient_factor = clip,
                                                     .trust = 0.001,
                                                     .weight_decay = 0.1,
                                                     .factors = {results + 1, {count}, ElementType::f32, space}});
    device.backend().copy(device.stream(), {results + 1 + count, {2 * count}, ElementType::f32, space}, squares);
    device.stream().synchronize();
  };
  const auto expected = left_by(cpu_, values, 0, operation).back();
  EXPECT_TRUE(same_bits(left_by(cuda_, values, 0, operation).back(), expected));
  EXPECT_TRUE(same_bits(left_by(cuda_, values, 3, operation).back(), expected));
}

// Small integers are exact in bf16.
std::vector<float> integers_of(const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 251) - 125;
  return values;
}

TEST_F(CudaFlat, ConvertsBetweenLayoutsAndPadsChannelsWithZeros) {
  for (const ElementType type : {ElementType::f32, ElementType::bf16}) {
    const Precision precision = type == ElementType::bf16 ? Precision::bf16 : Precision::fp32;
    Device device(tutti_cuda_library().make_backend({.precision = precision}));
    for (const Shape& shape :
         {Shape{3, 1, 28, 28}, Shape{2, 3, 17, 19}, Shape{2, 20, 3, 3}, Shape{5, 10}, Shape{3, 1000}, Shape{1, 1}}) {
      const ActivationSpec within = cuda::activation_of(shape, type);
      const auto values = integers_of(shape);
      const Buffer memory = device.backend().allocate(within.bytes);
      device.poison(memory);
      device.set_values(within, memory, values);
      EXPECT_TRUE(same_bits(device.values_of(within, memory), values)) << shape.text();

      const auto bytes =
          device.download<std::uint8_t>(memory.view({static_cast<std::int64_t>(within.bytes)}, ElementType::u8));
      const cuda::ImageLayout layout = cuda::layout_of(within);
      std::size_t byte = 0;
      for (std::int64_t row = 0; row < layout.rows(); ++row) {
        for (std::int64_t channel = 0; channel < layout.padded_channels; ++channel) {
          std::uint32_t bits = 0;  // of an f32: bf16 are its upper half
          const std::size_t size = bytes_of(type);
          std::memcpy(reinterpret_cast<std::byte*>(&bits) + 4 - size, bytes.data() + byte, size);
          byte += size;
          const std::int64_t at = (row / layout.pixels() * layout.channels + channel) * layout.pixels();
          const float expected =
              channel < layout.channels ? values[static_cast<std::size_t>(at + row % layout.pixels())] : 0.0f;
          ASSERT_EQ(bits, std::bit_cast<std::uint32_t>(expected)) << shape.text() << ", row " << row << ", " << channel;
        }
      }
      ASSERT_EQ(byte, bytes.size());
    }
  }
}

TEST_F(CudaFlat, RefusesTensorsThatDoNotMatch) {
  Backend& backend = cuda_.backend();
  Stream& stream = cuda_.stream();
  const Buffer buffer = cuda_.buffer_of({1, 2, 3, 4});
  const Tensor four = buffer.view({4}, ElementType::f32);
  const Tensor three = buffer.view({3}, ElementType::f32);
  const Tensor integers = buffer.view({4}, ElementType::i32);
  Tensor elsewhere = four;
  elsewhere.space = MemorySpace::host;
  EXPECT_THROW(backend.copy(stream, four, three), Error);
  EXPECT_THROW(backend.fill_zero(stream, elsewhere), Error);
  EXPECT_THROW(backend.add(stream, four, three), Error);
  EXPECT_THROW(backend.add(stream, four, integers), Error);
  EXPECT_THROW(backend.add(stream, four, elsewhere), Error);
  EXPECT_THROW(backend.sgd_step(stream, {four, three, {}, 0.1f}), Error);
  EXPECT_THROW(backend.sgd_step(stream, {four, four, three, 0.1f, 0.9f}), Error);
  EXPECT_THROW(backend.sgd_step(stream, {four, four, {}, 0.1f, 0.9f}), Error);
  EXPECT_THROW(backend.sgd_step(stream, {four, four, {}, 0.1f, 0, 0, false, {}, four}), Error);
  EXPECT_THROW(backend.adamw_step(stream, {four, four, four, three}), Error);
  EXPECT_THROW(backend.sum_squares(stream, {{four}}, four), Error);
  EXPECT_THROW(backend.clip_factor(stream, four, 1, four), Error);
}

}  // namespace
}  // namespace tutti::testing_support
