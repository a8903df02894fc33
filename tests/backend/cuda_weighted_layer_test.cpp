#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/format.hpp"
#include "backend/cuda/runtime.hpp"
#include "backend/cuda/weights.hpp"
#include "backend/device_values.hpp"

#include <gtest/gtest.h>

#include <bit>

namespace tutti::testing_support {
namespace {

cuda::FilterLayout layout_of(std::int64_t outputs, std::int64_t channels, std::int64_t positions, ElementType type) {
  return {outputs, channels, positions, cuda::padded_channels(outputs, type), cuda::padded_channels(channels, type)};
}

// Small and large extents, and tiles that end within the positions and within the channels.
std::vector<cuda::FilterLayout> awkward_layouts(ElementType type) {
  return {layout_of(1, 1, 1, type),     layout_of(20, 1, 9, type),   layout_of(50, 20, 25, type),
          layout_of(10, 513, 9, type),  layout_of(3, 3, 1500, type), layout_of(2, 30, 1153, type),
          layout_of(7, 10000, 1, type), layout_of(9, 600, 49, type), layout_of(64, 64, 9, type),
          layout_of(1, 4608, 1, type),  layout_of(2, 8, 577, type),  layout_of(2, 5, 576, type)};
}

class CudaFilters : public ::testing::TestWithParam<ElementType> {
 protected:
  CudaFilters() : device_(tutti_cuda_library().make_backend({})) {}

  // What f32 values are after rounding to the type.
  std::vector<float> representable(std::int64_t count) const {
    std::vector<float> values = random_floats(count, "filters");
    if (type() == ElementType::f32) return values;
    for (float& value : values) value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xFFFF0000u);
    return values;
  }

  std::vector<float> packed_values(const Buffer& packed) {
    const auto bytes = static_cast<std::int64_t>(packed.bytes());
    if (type() == ElementType::f32) return device_.download<float>(packed.view({bytes / 4}, ElementType::f32));
    std::vector<float> values;
    for (const auto half : device_.download<std::uint16_t>(packed.view({bytes / 2}, ElementType::bf16))) {
      values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16));
    }
    return values;
  }

  static ElementType type() { return GetParam(); }
  cudaStream_t stream() { return cuda::native(as_cuda_stream(device_.stream())); }

  Device device_;
};

// There are more layers than one launch takes, so that the tables of multiple launches are read to their ends.
TEST_P(CudaFilters, ArePackedTogetherWithZerosAroundThemAndUnpackedAgain) {
  struct Filters {
    cuda::FilterLayout layout;
    std::vector<float> values;
    Buffer canonical;
    Buffer packed;
  };
  std::vector<Filters> layers;
  std::vector<cuda::PackedFilters> filters;
  for (int round = 0; round < 6; ++round) {
    for (const cuda::FilterLayout& layout : awkward_layouts(type())) {
      const auto bytes = static_cast<std::size_t>(layout.packed_values()) * bytes_of(type());
      const auto values = representable(layout.outputs * layout.channels * layout.positions);
      layers.push_back({layout, values, device_.buffer_of(values), device_.backend().allocate(bytes)});
      const Filters& made = layers.back();
      filters.push_back({layout, type(), static_cast<float*>(made.canonical.data()), made.packed.data()});
    }
  }
  ASSERT_GT(layers.size(), 64u);
  cuda::launch_pack(stream(), filters);

  for (const auto& [layout, values, canonical, packed] : layers) {
    std::vector<float> expected(static_cast<std::size_t>(layout.packed_values()));
    for (std::int64_t i = 0; i < std::ssize(values); ++i) {
      const std::int64_t position = i % layout.positions;
      const std::int64_t channel = i / layout.positions % layout.channels;
      const std::int64_t output = i / layout.positions / layout.channels;
      expected[static_cast<std::size_t>((output * layout.positions + position) * layout.padded_channels + channel)] =
          values[static_cast<std::size_t>(i)];
    }
    EXPECT_EQ(packed_values(packed), expected) << layout.outputs << ", " << layout.channels << ", " << layout.positions;
    device_.poison(canonical);
  }
  cuda::launch_unpack(stream(), filters);
  for (const auto& [layout, values, canonical, packed] : layers) {
    EXPECT_EQ(device_.download<float>(canonical.view({std::ssize(values)}, ElementType::f32)), values);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaFilters, ::testing::Values(ElementType::f32, ElementType::bf16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

}  // namespace
}  // namespace tutti::testing_support
