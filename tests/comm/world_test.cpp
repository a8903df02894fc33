#include "tutti/comm/world.hpp"

#include "tutti/base/error.hpp"

#include "support/mpi_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

namespace tutti {
namespace {

std::int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

TEST(World, KnowsItsPlaceInTheJob) {
  World& world = test_world();
  EXPECT_EQ(world.rank(), launcher_rank());
  std::vector<std::string> ranks;
  for (int rank = 0; rank < world.size(); ++rank) ranks.push_back(std::to_string(rank));
  EXPECT_EQ(all_gather_text(world, std::to_string(world.rank())), ranks);
  EXPECT_NE(world.description().find("MPI"), std::string::npos) << world.description();
  EXPECT_EQ(world.description().find(','), std::string::npos) << world.description();
}

TEST(World, CountsTheRanksOfItsHost) {
  World& world = test_world();
  const std::vector<std::string> hosts = all_gather_text(world, world.host());
  EXPECT_EQ(world.local_size(), std::count(hosts.begin(), hosts.end(), world.host()));
  EXPECT_EQ(world.local_rank(), std::count(hosts.begin(), hosts.begin() + world.rank(), world.host()));
}

TEST(World, IsMadeOncePerProcess) { EXPECT_THROW(make_mpi_world(), Error); }

TEST(World, AgreesOnlyWhenEveryRankDoes) {
  World& world = test_world();
  EXPECT_TRUE(world.agree(true));
  EXPECT_FALSE(world.agree(false));
  for (int dissenter = 0; dissenter < world.size(); ++dissenter) {
    EXPECT_FALSE(world.agree(world.rank() != dissenter)) << dissenter;
  }
}

TEST(World, HoldsEveryRankAtABarrierUntilTheLastOneArrives) {
  World& world = test_world();
  for (int late = 0; late < world.size(); ++late) {
    if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const std::int64_t arrived = now();
    world.barrier();
    const std::int64_t left = now();
    // Ranks of one host share the clock.
    const std::string last_arrival = all_gather_text(world, std::to_string(arrived))[static_cast<std::size_t>(late)];
    if (world.local_size() == world.size()) {
      EXPECT_GE(left, std::stoll(last_arrival));
    }
  }
}

TEST(World, BroadcastsTheRootsBytes) {
  World& world = test_world();
  for (int root = 0; root < world.size(); ++root) {
    for (const std::size_t length : {0U, 1U, 1000U, 3'000'001U}) {
      std::vector<std::byte> bytes(length, static_cast<std::byte>(world.rank() + 1));
      world.broadcast(bytes, root);
      EXPECT_EQ(bytes, std::vector<std::byte>(length, static_cast<std::byte>(root + 1))) << length;
    }
  }
}

TEST(World, BroadcastsTextOfAnyLength) {
  World& world = test_world();
  for (int root = 0; root < world.size(); ++root) {
    const std::string text = fmt::format("from {}{}", root, std::string(1, '\0'));
    EXPECT_EQ(broadcast_text(world, world.rank() == root ? text : "mine is longer than theirs", root), text);
    EXPECT_EQ(broadcast_text(world, world.rank() == root ? "" : "mine", root), "");
  }
}

TEST(World, RefusesOnAllRanksABroadcastTheyDisagreeOn) {
  World& world = test_world();
  const int last = world.size() - 1;
  std::vector<std::byte> bytes(world.rank() == last ? 16 : 8);
  if (last > 0) {
    EXPECT_THROW(world.broadcast(bytes, 0), Error);
    bytes.resize(8);
    EXPECT_THROW(world.broadcast(bytes, world.rank() == last ? 0 : 1), Error);
  }
  EXPECT_THROW(world.broadcast(bytes, world.size()), Error);
  EXPECT_THROW(world.broadcast(bytes, -1), Error);
  EXPECT_TRUE(world.agree(true));
}

TEST(World, GathersBytesOfDifferingLengths) {
  World& world = test_world();
  for (const std::size_t unit : {std::size_t{1}, std::size_t{100'003}}) {
    const auto rank = static_cast<std::size_t>(world.rank());
    const std::vector<std::byte> mine(rank * unit, static_cast<std::byte>(world.rank()));
    const auto all = world.all_gather(mine);
    ASSERT_EQ(std::ssize(all), world.size());
    for (std::size_t from = 0; from < all.size(); ++from) {
      EXPECT_EQ(all[from], std::vector<std::byte>(from * unit, static_cast<std::byte>(from)));
    }
  }
}

TEST(World, GathersNothingFromRanksThatGiveNothing) {
  for (const std::string& text : all_gather_text(test_world(), "")) EXPECT_EQ(text, "");
}

TEST(World, SplitsByColourInTheOrderOfRanks) {
  World& world = test_world();
  const auto sub = world.split(world.rank() % 2);
  ASSERT_NE(sub, nullptr);
  EXPECT_EQ(sub->rank(), world.rank() / 2);
  EXPECT_EQ(sub->size(), (world.size() + 1 - world.rank() % 2) / 2);
  EXPECT_LE(sub->local_size(), sub->size());
  const std::vector<std::string> members = all_gather_text(*sub, std::to_string(world.rank()));
  for (std::size_t at = 0; at < members.size(); ++at) {
    EXPECT_EQ(members[at], std::to_string(2 * static_cast<int>(at) + world.rank() % 2));
  }
  sub->close();
}

TEST(World, LeavesRanksWithoutColourOut) {
  World& world = test_world();
  const auto sub = world.split(world.rank() == 0 ? 5 : -1);
  if (world.rank() == 0) {
    ASSERT_NE(sub, nullptr);
    EXPECT_EQ(sub->size(), 1);
    EXPECT_TRUE(sub->agree(true));
    sub->close();
  } else {
    EXPECT_EQ(sub, nullptr);
  }
}

TEST(World, KeepsCollectivesOfSubWorldsApart) {
  World& world = test_world();
  const auto sub = world.split(world.rank() % 2);
  EXPECT_EQ(sub->agree(world.rank() % 2 == 0), world.rank() % 2 == 0);
  const auto inner = sub->split(0);
  EXPECT_EQ(broadcast_text(*inner, std::to_string(world.rank() % 2), 0), std::to_string(world.rank() % 2));
  inner->close();
  sub->close();
  EXPECT_TRUE(world.agree(true));
}

TEST(World, MayLoseASubWorldThatWasNotClosed) {
  World& world = test_world();
  { const auto sub = world.split(0); }
  EXPECT_TRUE(world.agree(true));
}

}  // namespace
}  // namespace tutti
