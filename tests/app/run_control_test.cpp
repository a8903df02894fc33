#include "run_control.hpp"

#include "tutti/base/error.hpp"

#include "support/mpi_world.hpp"
#include "support/scratch_folder.hpp"
#include "support/thrown.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using enum BoundaryAction;

// As in the program, signals are blocked before MPI starts its threads, which would otherwise receive them.
[[maybe_unused]] const int blocked_for_all_threads = [] {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  return pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}();

// A RunControl with a simulated clock.
class RunControlTest : public testing::Test {
 protected:
  RunControl control(const RunLimits& limits) {
    return {test_world(), *signals_, limits, [this] { return seconds_; }};
  }
  // The actions at the next `boundaries`, which are `apart` seconds apart.
  std::vector<BoundaryAction> actions(RunControl& control, int boundaries, double apart) {
    std::vector<BoundaryAction> all;
    for (int i = 0; i < boundaries; ++i) {
      seconds_ += apart;
      all.push_back(control.at_boundary());
    }
    return all;
  }
  // Advances by boundaries until the control requests a stop, and returns the time.
  double stops_at(RunControl& control, double apart) {
    while (actions(control, 1, apart).front() != save_and_stop) {
      if (seconds_ > 1e6) throw std::runtime_error("it does not stop");
    }
    EXPECT_TRUE(test_world().all_true(true));
    return seconds_;
  }

  std::optional<StopSignals> signals_{std::in_place};
  double seconds_ = 0;
};

TEST_F(RunControlTest, GoesOnWhileNothingHappens) {
  auto quiet = control({});
  EXPECT_EQ(actions(quiet, 50, 1000), std::vector(50, proceed));
  EXPECT_EQ(quiet.reason(), "");
  test_world().finish_max();
}

TEST_F(RunControlTest, KeepsTheStateForAPercentOfTheTime) {
  auto keeping = control({.keeps = true});
  EXPECT_EQ(actions(keeping, 5, 1), (std::vector{proceed, keep, proceed, proceed, proceed})) << "not before it is kept";
  keeping.kept(0.05);
  EXPECT_EQ(actions(keeping, 7, 1), (std::vector{proceed, proceed, proceed, proceed, proceed, keep, proceed}));
  test_world().finish_max();
}

TEST_F(RunControlTest, StopsTwoBoundariesAfterASignalToAnyRank) {
  World& world = test_world();
  for (int rank = 0; rank < world.size(); ++rank) {
    for (const int signal : {SIGUSR1, SIGTERM, SIGINT}) {
      signals_.reset();
      signals_.emplace();
      auto control_of_run = control({});
      EXPECT_EQ(actions(control_of_run, 3, 1), std::vector(3, proceed));
      if (world.rank() == rank) ::kill(::getpid(), signal);
      while (world.rank() == rank && signals_->first() == 0) std::this_thread::yield();
      EXPECT_EQ(actions(control_of_run, 2, 1), (std::vector{proceed, save_and_stop}));
      const std::string host = all_gather_text(world, world.host())[static_cast<std::size_t>(rank)];
      EXPECT_EQ(control_of_run.reason(), fmt::format("{} at rank {} on host {}", signal_name(signal), rank, host));
    }
  }
}

TEST_F(RunControlTest, EndsWhenTheFolderIsNoLongerTheRuns) {
  const ScratchFolder folder;
  const FolderLock lock(folder.path(), 0, Log());
  auto owned = control({.folder = OwnedFolder(folder.path(), lock.text())});
  EXPECT_EQ(actions(owned, 5, 2), std::vector(5, proceed));
  std::filesystem::remove(folder.file("lock"));
  EXPECT_EQ(actions(owned, 1, 2), std::vector{proceed});
  const Error error = thrown_by([&] { actions(owned, 1, 2); });
  EXPECT_EQ(error.source(), ErrorSource::save);
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
}

TEST_F(RunControlTest, EndsAllRanksForAFailureOfOne) {
  const int last = test_world().size() - 1;
  auto failing = control({});
  EXPECT_EQ(actions(failing, 2, 1), std::vector(2, proceed));
  if (test_world().rank() == last) failing.end_for("the disk is full");
  EXPECT_EQ(actions(failing, 1, 1), std::vector{proceed});
  const Error error = thrown_by([&] { actions(failing, 1, 1); });
  EXPECT_EQ(error.source(), ErrorSource::save);
  EXPECT_EQ(error.scope(), ErrorScope::all_ranks);
  EXPECT_STREQ(error.what(), "the disk is full");
}

TEST_F(RunControlTest, SavesByTheClockOfRankZero) {
  auto clocked = control({.save_every = 10});
  if (test_world().rank() != 0) seconds_ = 1e6;
  EXPECT_EQ(actions(clocked, 9, 4),
            (std::vector{proceed, proceed, proceed, save, proceed, proceed, proceed, save, proceed}));
  test_world().finish_max();
}

TEST_F(RunControlTest, CountsTheSecondsFromTheLastSaveOfAnyKind) {
  auto clocked = control({.save_every = 10});
  EXPECT_EQ(actions(clocked, 2, 4), (std::vector{proceed, proceed}));
  clocked.on_snapshot();  // at 8 s, as at the end of an epoch
  EXPECT_EQ(actions(clocked, 5, 4), (std::vector{proceed, proceed, proceed, save, proceed}));
  test_world().finish_max();
}

TEST_F(RunControlTest, StopsEarlyEnoughForTheLongestStepAndSave) {
  // Requested at the first boundary with less than 1.5 x (2 steps + 2 saves) + 1 s left, done one boundary later.
  const auto end = [&](double save_seconds, double step_seconds) {
    seconds_ = 0;
    auto limited = control({.time_limit = 1000, .checkpoint_bytes = 50'000'000});
    if (save_seconds > 0) limited.saved(save_seconds);
    const double stopped = stops_at(limited, step_seconds);
    EXPECT_EQ(limited.reason(), "the time limit of 1000 s");
    return stopped;
  };
  EXPECT_EQ(end(0, 1), 992);    // 991 + 1: a save is assumed to take 2 s, so 10 s are needed
  EXPECT_EQ(end(20, 1), 938);   // 64 s are needed
  EXPECT_EQ(end(20, 10), 920);  // 91 s
  EXPECT_EQ(end(1, 50), 900);   // 154 s, first missing at 850
}

TEST_F(RunControlTest, RemembersTheLongestGapAndSave) {
  auto limited = control({.time_limit = 1000});
  limited.saved(2);
  limited.saved(0.1);
  actions(limited, 3, 1);
  actions(limited, 1, 40);               // an evaluation
  EXPECT_EQ(stops_at(limited, 1), 933);  // 1.5 * (41 + 4) + 1 = 68.5 s are needed
}

TEST_F(RunControlTest, StopsAtOnceWhenTheTimeLimitHasPassedAtTheStart) {
  seconds_ = 5000;
  auto late = control({.time_limit = 1000});
  EXPECT_EQ(actions(late, 2, 1), (std::vector{proceed, save_and_stop}));
}

TEST(ProcessClock, GoesOnFromTheProcessesAge) {
  const auto clock = process_clock();
  EXPECT_GT(clock(), 0);
  const double before = clock();
  EXPECT_GE(clock(), before);
  EXPECT_GE(seconds_since_process_start() + 0.02, before);
}

}  // namespace
}  // namespace tutti
