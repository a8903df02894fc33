#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"
#include "support/mpi_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr auto kRing = AllReduceAlgorithm::ring;

// Values of all magnitudes, so that the order of additions affects the result; many are denormal.
std::vector<float> wild_values(std::int64_t length, std::uint32_t salt) {
  const auto rank = static_cast<std::uint32_t>(test_world().rank());
  RandomSequence random(salt, {.item = rank, .purpose = random_purpose("wild values")});
  std::vector<float> values = rough_values(length, static_cast<int>(rank + 100 * salt));
  for (float& value : values) {
    const double turn = random.uniform();
    if (turn < 0.3) {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(turn * 2e7));
    } else if (turn < 0.6) {
      value *= 1e6F;
    }
  }
  return values;
}

std::vector<std::uint32_t> bits_of(const Tensor& values) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(values.elements()));
  if (!bits.empty()) std::memcpy(bits.data(), values.data, values.bytes());
  return bits;
}

std::vector<std::int64_t> even_bounds(std::int64_t length) {
  const std::int64_t ranks = test_world().size();
  std::vector<std::int64_t> bounds;
  for (std::int64_t rank = 0; rank <= ranks; ++rank) bounds.push_back(length * rank / ranks);
  return bounds;
}

// The choice of the algorithm by timing must never change these bits.
class EqualBits : public testing::TestWithParam<AllReduceAlgorithm> {
 protected:
  enum class Memory { allocated, other };

  // After an all_reduce of all elements, one of a middle range, and a reduce_scatter_gather with work in between.
  std::vector<std::uint32_t> sums_by(Communicator& communicator, std::int64_t length, Memory where) {
    std::vector<float> values = wild_values(length, 1);
    const auto bytes = values.size() * sizeof(float);
    const Buffer memory = where == Memory::allocated ? communicator.allocate(bytes) : Buffer();
    if (where == Memory::allocated && length > 0) std::memcpy(memory.data(), values.data(), bytes);
    auto* const data = where == Memory::allocated ? static_cast<float*>(memory.data()) : values.data();
    const Tensor all{.data = data, .shape = {length}};
    const Tensor part{.data = data + length / 3, .shape = {length - length / 3}};
    communicator.all_reduce(all, stream_);
    communicator.finish(stream_);
    for (std::int64_t i = 0; i < length; ++i) data[i] *= static_cast<float>(1 + test_world().rank()) / 3;
    communicator.all_reduce(part, stream_);
    communicator.reduce_scatter_gather({.values = all,
                                        .bounds = even_bounds(length),
                                        .transform_shard =
                                            [=](Stream&, std::int64_t begin, std::int64_t end) {
                                              for (std::int64_t i = begin; i < end; ++i) data[i] /= 7;
                                            },
                                        .results = all},
                                       stream_);
    communicator.finish(stream_);
    return bits_of(all);
  }

  IdleStream stream_;
};

TEST_P(EqualBits, AreThoseOfARingAtEverySizeInAllocatedAndOtherMemory) {
  World& world = test_world();
  const auto ring = make_mpi_communicator(world, {.algorithm = kRing});
  const auto communicator = make_mpi_communicator(world, {.algorithm = GetParam()});
  for (const std::int64_t length : {0, 1, 2, 3, 5, 17, 1009, 16384, 16387, 131'072, 1'100'003}) {
    const auto expected = sums_by(*ring, length, Memory::other);
    EXPECT_TRUE(equal_values(sums_by(*communicator, length, Memory::allocated), expected)) << length;
    EXPECT_TRUE(equal_values(sums_by(*communicator, length, Memory::other), expected)) << length;
  }
}

TEST_P(EqualBits, AreThoseOfARingInBf16) {
  World& world = test_world();
  const auto ring = make_mpi_communicator(world, {.algorithm = kRing});
  const auto communicator = make_mpi_communicator(world, {.algorithm = GetParam()});
  for (const std::int64_t length : {1, 17, 16387, 1'100'003}) {
    std::vector<Bf16> expected = in_bf16(wild_values(length, 2));
    const Buffer memory = communicator->allocate(expected.size() * sizeof(Bf16));
    std::memcpy(memory.data(), expected.data(), memory.bytes());
    communicator->all_reduce(memory.view({length}, ElementType::bf16), stream_);
    communicator->finish(stream_);
    ring->all_reduce(tensor_over(expected), stream_);
    ring->finish(stream_);
    EXPECT_EQ(std::memcmp(memory.data(), expected.data(), memory.bytes()), 0) << length;
  }
}

TEST_P(EqualBits, HoldWhenMemoryIsFreedAndAllocatedAgain) {
  World& world = test_world();
  const auto ring = make_mpi_communicator(world, {.algorithm = kRing});
  const auto communicator = make_mpi_communicator(world, {.algorithm = GetParam()});
  for (std::uint32_t time = 0; time < 20; ++time) {
    const auto length = static_cast<std::int64_t>(3 + 500 * time);
    // Mapped at addresses where other ranks' memory was just unmapped, with reused descriptors.
    const Buffer between = communicator->allocate(world.rank() % 2 == 0 ? 64 : 8192);
    EXPECT_TRUE(equal_values(sums_by(*communicator, length, Memory::allocated), sums_by(*ring, length, Memory::other)));
  }
}

INSTANTIATE_TEST_SUITE_P(Mpi, EqualBits,
                         testing::Values(AllReduceAlgorithm::direct, AllReduceAlgorithm::shared_memory,
                                         AllReduceAlgorithm::automatic),
                         [](const auto& which) { return std::string(name_of(which.param)); });

TEST(SumAlgorithms, AreReportedByDescriptionAndThresholds) {
  World& world = test_world();
  const auto direct = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::direct});
  EXPECT_EQ(direct->description(), "direct over " + world.description());
  const auto chosen = make_mpi_communicator(world, {});
  const auto thresholds = chosen->thresholds();
  ASSERT_FALSE(thresholds.empty());
  std::string thresholds_text;
  for (const AllReduceThreshold& threshold : thresholds) {
    thresholds_text += fmt::format("{} {} ", name_of(threshold.algorithm), threshold.up_to_bytes);
    EXPECT_NE(chosen->description().find(name_of(threshold.algorithm)), std::string::npos) << chosen->description();
  }
  EXPECT_EQ(all_gather_text(world, thresholds_text),
            std::vector<std::string>(static_cast<std::size_t>(world.size()), thresholds_text));
}

}  // namespace
}  // namespace tutti
