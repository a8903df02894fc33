#include "tutti/backend/tensor.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <array>

namespace tutti {
namespace {

TEST(Tensor, IsReadOnlyAsItsTypeAndOnlyInHostMemory) {
  std::array<float, 6> values{1, 2, 3, 4, 5, 6};
  Tensor tensor{values.data(), {2, 3}, ElementType::f32};
  EXPECT_EQ(host_f32(tensor).size(), 6u);
  EXPECT_EQ(host_f32(tensor)[5], 6);
  EXPECT_EQ(tensor.bytes(), 24u);
  EXPECT_THROW(host_i32(tensor), Error);
  tensor.space = MemorySpace::cuda;
  EXPECT_THROW(host_f32(tensor), Error);
}

TEST(Buffer, IsReleasedOnceByItsLastOwner) {
  int released = 0;
  std::array<std::byte, 8> block{};
  {
    Buffer first(block.data(), block.size(), MemorySpace::host, [&](void*) { ++released; });
    Buffer second(std::move(first));
    Buffer third;
    third = std::move(second);
    EXPECT_EQ(third.data(), block.data());
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(Buffer, RefusesAViewThatLeavesTheBlock) {
  std::array<std::byte, 16> block{};
  const Buffer buffer(block.data(), block.size(), MemorySpace::host, [](void*) {});
  EXPECT_EQ(buffer.view({2}, ElementType::f32, 8).data, block.data() + 8);
  EXPECT_THROW(buffer.view({3}, ElementType::f32, 8), Error);
  EXPECT_THROW(buffer.view({1}, ElementType::u8, 17), Error);
}

}  // namespace
}  // namespace tutti
