#include "tutti/watch/stall_watch.hpp"

#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <thread>

namespace tutti {
namespace {

constexpr std::chrono::seconds kLong{60};

// A single rank that enters a phase and makes no further progress.
[[noreturn]] void stall(
    Phase phase, const std::function<void(StallWatch&)>& prepare = [](StallWatch&) {}) {
  StallWatch watch(StallWatch::Signals::ignore);
  const auto world = make_solo_world();
  watch.begin(*world, {.timeout_seconds = 1}, {});
  RankStatus rank_status;
  rank_status.publish_in(watch.status_slot());
  rank_status.begin_step(17, phase);
  prepare(watch);
  std::this_thread::sleep_for(kLong);
  std::_Exit(0);
}

class StallWatchDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StallWatchDeathTest, EndsAProcessWithoutProgress) {
  EXPECT_EXIT(stall(Phase::forward), ::testing::ExitedWithCode(86),
              "rank 0 on .* is stuck: in forward of step 17 for 1.*the job ends with status 86");
}

TEST_F(StallWatchDeathTest, RunsBothEndCallbacksEvenIfTheyHang) {
  const auto prepare = [](StallWatch& watch) {
    watch.set_job_end_callback([](const StallReport& report) {
      write_stderr_line("reported " + std::string(name_of(report.at.phase)));
      std::this_thread::sleep_for(kLong);
    });
    watch.set_process_end_callback([] {
      write_stderr_line("the process ends");
      std::this_thread::sleep_for(kLong);
    });
  };
  EXPECT_EXIT(stall(Phase::data, prepare), ::testing::ExitedWithCode(86), "reported data\nthe process ends");
}

TEST_F(StallWatchDeathTest, EndsAProcessWhoseEndCallbacksThrow) {
  const auto prepare = [](StallWatch& watch) {
    watch.set_job_end_callback([](const StallReport&) { throw std::runtime_error("no report"); });
    watch.set_process_end_callback([] {
      write_stderr_line("the process ends");
      throw std::runtime_error("no abort");
    });
  };
  EXPECT_EXIT(stall(Phase::data, prepare), ::testing::ExitedWithCode(86), "the process ends");
}

TEST_F(StallWatchDeathTest, DelaysARankThatFailsBecauseTheJobEnds) {
  const auto fail_as_it_ends = [](StallWatch& watch) {
    std::atomic<bool> is_ending = false;
    watch.set_process_end_callback([&] {
      is_ending = true;
      std::this_thread::sleep_for(kLong);
    });
    while (!is_ending) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    watch.report_failure();
    std::_Exit(70);
  };
  EXPECT_EXIT(stall(Phase::data, fail_as_it_ends), ::testing::ExitedWithCode(86), "is stuck");
}

TEST_F(StallWatchDeathTest, DiesOfTheSignalsThatItHandles) {
  const auto die = [](int signal) {
    StallWatch watch(StallWatch::Signals::report_then_die);
    ::kill(::getpid(), signal);
    std::this_thread::sleep_for(kLong);
  };
  for (const int signal : {SIGTERM, SIGUSR1}) EXPECT_EXIT(die(signal), ::testing::KilledBySignal(signal), "");
}

TEST_F(StallWatchDeathTest, EndsAStartThatHangs) {
  const auto hang = [] {
    ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    const StallWatch watch(StallWatch::Signals::ignore, 0.3);
    std::this_thread::sleep_for(kLong);
    std::_Exit(0);
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(86), "rank 0 on .*: not all ranks have started after 0 s");
}

// The process that starts it ends at once, as a launcher that is killed does.
TEST(StallWatch, EndsAProcessWhoseLauncherEndsBeforeMpiHasStarted) {
  std::array<int, 2> ready{};
  std::array<int, 2> running{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  ASSERT_EQ(::pipe(running.data()), 0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    if (::fork() == 0) {
      const StallWatch watch(StallWatch::Signals::ignore);
      static_cast<void>(::write(ready[1], "", 1));
      std::this_thread::sleep_for(kLong);
      std::_Exit(0);
    }
    char byte = 0;
    static_cast<void>(::read(ready[0], &byte, 1));
    std::_Exit(0);
  }
  ::close(running[1]);
  EXPECT_EQ(::waitpid(launcher, nullptr, 0), launcher);
  pollfd end{running[0], POLLIN, 0};
  EXPECT_EQ(::poll(&end, 1, 30000), 1) << "it still runs";
  ::close(running[0]);
  for (const int descriptor : ready) ::close(descriptor);
}

TEST(StallWatch, DoesNotEndARankThatMakesProgressOrHasFinished) {
  StallWatch watch(StallWatch::Signals::ignore);
  const auto world = make_solo_world();
  watch.begin(*world, {.timeout_seconds = 2}, {});
  {
    RankStatus rank_status;
    rank_status.publish_in(watch.status_slot());
    for (int i = 0; i < 60; ++i) {
      rank_status.begin_step(i, Phase::data);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  }
  watch.finish();
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
}

TEST(StallWatch, RefusesTooShortTimeouts) {
  StallWatch watch(StallWatch::Signals::ignore);
  const auto world = make_solo_world();
  EXPECT_THAT(thrown_by([&] { watch.begin(*world, {.timeout_seconds = 0.5}, {}); }),
              reports(ErrorSource::usage, "--stall-timeout 0.5: must be 1 to"));
  watch.finish();
}

}  // namespace
}  // namespace tutti
