#include "tutti/comm/world.hpp"

#include "tutti/base/error.hpp"

#include "support/mpi_world.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

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
  EXPECT_TRUE(world.all_true(true));
  EXPECT_FALSE(world.all_true(false));
  for (int dissenter = 0; dissenter < world.size(); ++dissenter) {
    EXPECT_FALSE(world.all_true(world.rank() != dissenter)) << dissenter;
  }
}

TEST(World, FindsTheMaximumWithOtherCollectivesInBetween) {
  World& world = test_world();
  for (int step = 0; step < 100; ++step) {
    const int chosen = step % world.size();
    const std::int64_t mine = (world.rank() == chosen ? std::int64_t{1} << 40 : -world.rank()) + step;
    world.start_max(mine);
    if (step % 2 == 0) {
      EXPECT_TRUE(world.all_true(true));
    }
    if (step % 3 == 0) {
      EXPECT_EQ(broadcast_text(world, std::to_string(world.rank()), chosen), std::to_string(chosen));
    }
    if (step % 5 == 0) {
      EXPECT_EQ(std::ssize(all_gather_text(world, "x")), world.size());
    }
    EXPECT_EQ(world.finish_max(), (std::int64_t{1} << 40) + step);
  }
}

TEST(World, FindsOneMaximumAtATime) {
  World& world = test_world();
  EXPECT_EQ(thrown_by([&] { world.finish_max(); }).source(), ErrorSource::internal);
  world.start_max(world.rank());
  EXPECT_EQ(thrown_by([&] { world.start_max(100); }).source(), ErrorSource::internal);
  EXPECT_EQ(world.finish_max(), world.size() - 1);
  EXPECT_EQ(thrown_by([&] { world.finish_max(); }).source(), ErrorSource::internal);
}

TEST(World, FindsTheMaximumOfASubWorldAtTheSameTime) {
  World& world = test_world();
  const int parity = world.rank() % 2;
  const auto sub = world.split(parity);
  world.start_max(world.rank());
  sub->start_max(world.rank());
  EXPECT_EQ(world.finish_max(), world.size() - 1);
  EXPECT_EQ(sub->finish_max(), 2 * (sub->size() - 1) + parity);
  sub->start_max(7);
  sub->close();  // ends it
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
  EXPECT_TRUE(world.all_true(true));
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

TEST(World, SplitsByColorInTheOrderOfRanks) {
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

TEST(World, ExcludesRanksWithoutAColor) {
  World& world = test_world();
  const auto sub = world.split(world.rank() == 0 ? 5 : -1);
  if (world.rank() == 0) {
    ASSERT_NE(sub, nullptr);
    EXPECT_EQ(sub->size(), 1);
    EXPECT_TRUE(sub->all_true(true));
    sub->close();
  } else {
    EXPECT_EQ(sub, nullptr);
  }
}

TEST(World, KeepsCollectivesOfSubWorldsApart) {
  World& world = test_world();
  const auto sub = world.split(world.rank() % 2);
  EXPECT_EQ(sub->all_true(world.rank() % 2 == 0), world.rank() % 2 == 0);
  const auto inner = sub->split(0);
  EXPECT_EQ(broadcast_text(*inner, std::to_string(world.rank() % 2), 0), std::to_string(world.rank() % 2));
  inner->close();
  sub->close();
  EXPECT_TRUE(world.all_true(true));
}

std::span<std::byte> bytes_of_buffer(const Buffer& memory) {
  return {static_cast<std::byte*>(memory.data()), memory.bytes()};
}

// The files in /dev/shm that this process has mapped, from /proc; unlinked ones are marked as deleted.
std::vector<std::string> mapped_shared_files() {
  std::ifstream maps("/proc/self/maps");
  std::vector<std::string> files;
  for (std::string line; std::getline(maps, line);) {
    if (const auto at = line.find("/dev/shm/tutti-"); at != std::string::npos) files.push_back(line.substr(at));
  }
  return files;
}

TEST(World, SharesMemoryAmongTheRanksOfAHost) {
  World& world = test_world();
  const bool writes = world.local_rank() == 0;
  const std::size_t lengths[] = {1'000'003, 5000};
  std::vector<Buffer> windows;
  for (const std::size_t length : lengths) windows.push_back(world.node_memory(writes ? length : 7));
  for (std::size_t i = 0; i < windows.size(); ++i) {
    const auto bytes = bytes_of_buffer(windows[i]);
    ASSERT_EQ(bytes.size(), lengths[i]);
    EXPECT_EQ(std::ranges::count(bytes, std::byte{0}), std::ssize(bytes)) << "not zeroed";
  }
  world.node_barrier();
  for (std::size_t i = 0; writes && i < windows.size(); ++i)
    std::ranges::fill(bytes_of_buffer(windows[i]), std::byte(i + 1));
  world.node_barrier();
  for (std::size_t i = 0; i < windows.size(); ++i) {
    EXPECT_EQ(std::ranges::count(bytes_of_buffer(windows[i]), std::byte(i + 1)),
              std::ssize(bytes_of_buffer(windows[i])));
  }
  world.node_barrier();
  EXPECT_EQ(world.node_memory(0).bytes(), 0U);
}

TEST(World, SharesMemoryThatGrewWhileItWasFilled) {
  World& world = test_world();
  GrowingMemory memory = world.begin_node_memory();
  if (world.local_rank() == 0) {
    for (std::size_t bytes = 1; bytes <= 10'000'000; bytes *= 10) {
      const std::size_t filled = memory.bytes();
      memory.resize(bytes);
      std::fill(memory.data() + filled, memory.data() + bytes, std::byte{7});
    }
    memory.resize(5'000'000);
  }
  const Buffer shared = world.share(std::move(memory));
  ASSERT_EQ(shared.bytes(), 5'000'000U);
  EXPECT_EQ(std::ranges::count(bytes_of_buffer(shared), std::byte{7}), 5'000'000);
}

TEST(World, LeavesNoFileInSharedMemory) {
  World& world = test_world();
  const Buffer window = world.node_memory(4096);
  const auto files = mapped_shared_files();
  EXPECT_EQ(files.size(), world.local_size() > 1 ? 1U : 0U);
  for (const std::string& file : files) {
    EXPECT_THAT(file, mentions("(deleted)"));
    EXPECT_FALSE(std::filesystem::exists(file.substr(0, file.find(' ')))) << file;
  }
}

// A file whose creator is alive is locked by it, or very new.
TEST(World, RemovesFilesOfKilledProcessesFromSharedMemory) {
  World& world = test_world();
  const auto path = [&](int number) { return fmt::format("/dev/shm/tutti-{:08x}{:08x}", ::getpid(), number); };
  const std::vector<std::string> paths{path(1), path(2), path(3), path(4) + ".h5"};  // the last one is a user's
  for (const std::string& name : paths) std::ofstream(name) << "data";
  for (const std::string& name : {paths[0], paths[1], paths[3]}) {
    std::filesystem::last_write_time(name, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  }
  const int locked = ::open(paths[1].c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(locked, LOCK_EX), 0);
  world.barrier();
  const Buffer window = world.node_memory(4096);
  EXPECT_EQ(std::filesystem::exists(paths[0]), world.local_size() == 1);  // a single rank allocates none
  EXPECT_TRUE(std::filesystem::exists(paths[1]));
  EXPECT_TRUE(std::filesystem::exists(paths[2]));
  EXPECT_TRUE(std::filesystem::exists(paths[3]));
  ::close(locked);
  for (const std::string& name : paths) std::filesystem::remove(name);
}

TEST(World, RefusesOnAllRanksMoreSharedMemoryThanThereIs) {
  World& world = test_world();
  if (world.local_size() > 1) {
    const Error error = thrown_by([&] { world.node_memory(std::size_t{1} << 60); });
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
    const std::string text = error.what();
    EXPECT_THAT(text, mentions("1099511627776.0 MiB of shared memory are needed, but only ", "/dev/shm"));
  }
  EXPECT_TRUE(mapped_shared_files().empty());
  EXPECT_EQ(world.node_memory(8).bytes(), 8U);
}

TEST(World, GivesEverySubWorldItsOwnMemory) {
  World& world = test_world();
  const auto sub = world.split(world.rank() % 2);
  const Buffer window = sub->node_memory(1);
  if (sub->local_rank() == 0) bytes_of_buffer(window)[0] = static_cast<std::byte>(1 + world.rank() % 2);
  sub->node_barrier();
  EXPECT_EQ(bytes_of_buffer(window)[0], static_cast<std::byte>(1 + world.rank() % 2));
  sub->close();
}

TEST(World, SurvivesASubWorldThatWasNotClosed) {
  World& world = test_world();
  { const auto sub = world.split(0); }
  EXPECT_TRUE(world.all_true(true));
}

}  // namespace
}  // namespace tutti
