#include "tutti/backend/tensor.hpp"

#include "tutti/backend/growing_memory.hpp"
#include "tutti/base/error.hpp"

#include "support/thrown.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

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

// Fills all bytes beyond those that are filled.
void grow_to(GrowingMemory& memory, std::size_t bytes) {
  const std::size_t filled = memory.bytes();
  memory.resize(bytes);
  EXPECT_EQ(std::count(memory.data() + filled, memory.data() + bytes, std::byte{0}),
            static_cast<std::ptrdiff_t>(bytes - filled));
  std::fill(memory.data() + filled, memory.data() + bytes, std::byte{7});
}

std::size_t sevens_in(const Buffer& buffer) {
  const auto* const bytes = static_cast<const std::byte*>(buffer.data());
  return static_cast<std::size_t>(std::count(bytes, bytes + buffer.bytes(), std::byte{7}));
}

TEST(GrowingMemory, KeepsItsBytesInEverySize) {
  GrowingMemory memory;
  for (const std::size_t bytes : {0U, 1U, 5000U, 10'000'000U}) grow_to(memory, bytes);
  memory.resize(6'000'000);
  grow_to(memory, 7'000'001);
  GrowingMemory moved(std::move(memory));
  const Buffer buffer = moved.take();
  EXPECT_EQ(buffer.bytes(), 7'000'001U);
  EXPECT_EQ(sevens_in(buffer), buffer.bytes());
  EXPECT_EQ(moved.bytes(), 0U);
}

TEST(GrowingMemory, SaysHowMuchIsNeededInAllIfItsFileCannotGrow) {
  Descriptor file(::memfd_create("growing", MFD_CLOEXEC));
  const int number = file.get();
  std::size_t most = 10'000;
  GrowingMemory memory(std::move(file), [&most](int of, std::size_t bytes) {
    if (bytes > most) throw Error(ErrorSource::input, std::to_string(bytes) + " bytes");
    ASSERT_EQ(::ftruncate(of, static_cast<off_t>(bytes)), 0);
  });
  grow_to(memory, 9000);
  EXPECT_EQ(::lseek(number, 0, SEEK_END), 9000);
  grow_to(memory, 20'000);
  EXPECT_EQ(::lseek(number, 0, SEEK_END), 0) << "the file has kept its pages";
  grow_to(memory, 30'000);
  EXPECT_EQ(std::string(thrown_by([&] { memory.take(); }).what()), "30000 bytes");
  most = 30'000;  // room was made
  const Buffer buffer = memory.take();
  EXPECT_EQ(::lseek(number, 0, SEEK_END), 30'000);
  EXPECT_EQ(sevens_in(buffer), 30'000U);
}

}  // namespace
}  // namespace tutti
