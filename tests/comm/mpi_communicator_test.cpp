#include "tutti/base/denormals.hpp"
#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"
#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <thread>

namespace tutti {
namespace {

enum class Driver { finish_only, caller, helper_thread, other_thread };

// Sums rounding-sensitive values, split into operations like gradients, with or without a helper thread.
std::vector<float> driven_by(Driver driver) {
  World& world = test_world();
  const auto communicator = make_mpi_communicator(
      world, {.helper_thread = driver == Driver::helper_thread, .algorithm = AllReduceAlgorithm::ring});
  IdleStream stream;
  std::vector<float> values = rough_values(900'001, world.rank());
  std::jthread other;
  if (driver == Driver::other_thread) {
    other = std::jthread([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (!communicator->progress()) std::this_thread::yield();
      }
    });
  }
  std::int64_t first = 0;
  for (const std::int64_t length : {1L, 300'000L, 3L, 599'990L, 7L}) {
    communicator->all_reduce({.data = values.data() + first, .shape = {length}}, stream);
    first += length;
    while (driver == Driver::caller && communicator->progress()) std::this_thread::yield();
  }
  communicator->finish(stream);
  return values;
}

TEST(MpiCommunicator, GivesTheSameBitsWhicheverThreadDrivesIt) {
  const std::vector<float> expected = driven_by(Driver::finish_only);
  EXPECT_TRUE(equal_values(driven_by(Driver::caller), expected));
  EXPECT_TRUE(equal_values(driven_by(Driver::helper_thread), expected));
  EXPECT_TRUE(equal_values(driven_by(Driver::other_thread), expected));
}

TEST(MpiCommunicator, AddsEachChunkInTheOrderOfRanksFromItsOwn) {
  World& world = test_world();
  const std::int64_t ranks = world.size();
  constexpr std::int64_t kLength = 1009;
  std::vector<float> expected(kLength);
  for (std::int64_t chunk = 0; chunk < ranks; ++chunk) {
    for (std::int64_t turn = 0; turn < ranks; ++turn) {
      const std::vector<float> terms = rough_values(kLength, static_cast<int>((chunk + turn) % ranks));
      for (std::int64_t i = kLength * chunk / ranks; i < kLength * (chunk + 1) / ranks; ++i) {
        const auto at = static_cast<std::size_t>(i);
        expected[at] = turn == 0 ? terms[at] : expected[at] + terms[at];
      }
    }
  }
  const auto communicator = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring});
  IdleStream stream;
  std::vector<float> values = rough_values(kLength, world.rank());
  communicator->all_reduce(tensor_over(values), stream);
  communicator->finish(stream);
  EXPECT_TRUE(equal_values(values, expected));
}

TEST(MpiCommunicator, KeepsDenormalsWhateverTheCallersMode) {
  World& world = test_world();
  const auto communicator = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring});
  IdleStream stream;
  const float tiny = std::bit_cast<float>(std::uint32_t{3});
  std::vector<float> values(100, tiny);
  set_denormal_mode(flushing_modes().back());
  communicator->all_reduce(tensor_over(values), stream);
  communicator->finish(stream);
  const std::uint64_t mode_after = denormal_mode();
  set_denormal_mode(0);
  EXPECT_EQ(mode_after, flushing_modes().back());
  for (const float value : values) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), 3U * static_cast<std::uint32_t>(world.size()));
  }
}

// Every step of a ring of `length` elements sends one chunk; all but one of the chunks go around twice.
std::uint64_t elements_sent(std::int64_t length, std::int64_t rank, std::int64_t ranks) {
  const auto chunk = [&](std::int64_t number) {
    const std::int64_t wrapped = (number + 2 * ranks) % ranks;
    return length * (wrapped + 1) / ranks - length * wrapped / ranks;
  };
  std::int64_t sent = 0;
  for (std::int64_t step = 0; step < 2 * (ranks - 1); ++step) sent += chunk(rank - step);
  return static_cast<std::uint64_t>(sent);
}

TEST(MpiCommunicator, CountsThePayloadThatItSends) {
  World& world = test_world();
  const auto communicator = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring});
  IdleStream stream;
  std::uint64_t expected = 0;
  EXPECT_EQ(communicator->bytes_sent(), 0U);
  for (const std::int64_t length : {0, 1, 2, 3, 1009, 65536}) {
    std::vector<float> floats(static_cast<std::size_t>(length));
    std::vector<std::int64_t> integers(static_cast<std::size_t>(length) / 2);
    communicator->all_reduce(tensor_over(floats), stream);
    communicator->all_reduce(tensor_over(integers), stream);
    communicator->finish(stream);
    expected += 4 * elements_sent(length, world.rank(), world.size());
    expected += 8 * elements_sent(length / 2, world.rank(), world.size());
    EXPECT_EQ(communicator->bytes_sent(), expected) << length;
  }
}

TEST(MpiCommunicator, SendsNoMoreThanARingDoesHoweverLongTheSum) {
  World& world = test_world();
  const auto communicator = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring});
  IdleStream stream;
  std::vector<float> values(2'345'677);
  communicator->all_reduce(tensor_over(values), stream);
  communicator->finish(stream);
  std::uint64_t sent_by_all = 0;
  for (const std::string& text : all_gather_text(world, std::to_string(communicator->bytes_sent()))) {
    sent_by_all += std::stoull(text);
  }
  EXPECT_EQ(sent_by_all, 2 * static_cast<std::uint64_t>(world.size() - 1) * 4 * values.size());
}

TEST(MpiCommunicator, NamesItselfAndTheLibrary) {
  const auto communicator = make_mpi_communicator(test_world(), {.algorithm = AllReduceAlgorithm::ring});
  EXPECT_EQ(communicator->description(), "ring over " + test_world().description());
}

}  // namespace
}  // namespace tutti
