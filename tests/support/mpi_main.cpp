// GoogleTest's main for tests on multiple ranks. Rank 0 reports in full, the others only report failures, with their
// rank. Every rank exits with the worst result of all, so that no launcher can hide a failure, and rank 0 names the
// ranks that failed. A rank that leaves a test early ends the whole job.

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"

#include "mpi_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace tutti {
namespace {

World* world_of_tests = nullptr;  // borrowed from main while tests run

// Knows which test runs on which rank. OnTestPartResult() runs under GoogleTest's lock, where the name of the running
// test cannot be queried.
class RankListener : public testing::EmptyTestEventListener {
 public:
  explicit RankListener(World& world) : world_(world) {}
  void OnTestStart(const testing::TestInfo& test) override {
    place_ = fmt::format("[rank {} {}] {}.{}", world_.rank(), world_.host(), test.test_suite_name(), test.name());
  }

 protected:
  World& world_;
  std::string place_;
};

class FailuresOfRank final : public RankListener {
 public:
  using RankListener::RankListener;
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    write_stderr_line(fmt::format("{}: {}:{}: {}", place_, result.file_name() != nullptr ? result.file_name() : "",
                                  result.line_number(), result.message()));
  }
};

// An exception or a failed ASSERT takes a rank out of its test, and the others would wait for it in the test's next
// collective until CTest's time limit. They get a moment to report the same failure.
class EndOfAllRanks final : public RankListener {
 public:
  using RankListener::RankListener;
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.fatally_failed()) return;
    write_stderr_line(fmt::format("{}: this rank leaves the test and ends all ranks, which might wait for it", place_));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    world_.abort(1);
  }
};

// GoogleTest owns the listeners, and calls them in this order.
void add_listeners(World& world) {
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOfRank(world));
  }
  if (world.size() > 1) listeners.Append(new EndOfAllRanks(world));
}

int worst_of_all(World& world, int mine) {
  const std::vector<std::string> results = all_gather_text(world, std::to_string(mine));
  int worst = 0;
  std::string failed;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    worst = std::max(worst, std::stoi(results[rank]));
    if (results[rank] != "0") failed += fmt::format(" {}", rank);
  }
  if (worst != 0 && world.rank() == 0) write_stderr_line(fmt::format("tests failed on ranks{}", failed));
  return worst;
}

int run_tests() {
  if (!started_by_launcher()) {
    write_stderr_line("this test runs on multiple ranks: start it with mpiexec, or run all tests with ctest");
    return static_cast<int>(ExitStatus::usage);
  }
  const std::unique_ptr<World> world = make_mpi_world();
  world_of_tests = world.get();
  add_listeners(*world);
  const int result = RUN_ALL_TESTS();
  const bool has_run = testing::UnitTest::GetInstance()->test_to_run_count() > 0;
  if (!has_run) write_stderr_line("the filter selects no test");
  const int status = worst_of_all(*world, has_run ? result : 1);
  world_of_tests = nullptr;
  world->close();
  return status;
}

}  // namespace

World& test_world() {
  if (world_of_tests == nullptr) throw std::logic_error("test_world() exists only while tests run");
  return *world_of_tests;
}

}  // namespace tutti

// Sanitizers can name and suppress findings in a library only while it is loaded, but MPI unloads its plug-ins. In
// tests nothing is unloaded.
extern "C" int dlclose(void*) noexcept { return 0; }

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    return tutti::run_tests();
  } catch (const tutti::Error& error) {
    tutti::write_stderr_line(error.describe());
    return static_cast<int>(error.exit_status());
  }
}
