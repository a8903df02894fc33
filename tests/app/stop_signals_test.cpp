#include "streams_and_signals.hpp"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

namespace tutti {
namespace {

void send_to_process(int signal) { ::kill(::getpid(), signal); }

int wait_for_first(const StopSignals& signals) {
  while (signals.first() == 0) std::this_thread::yield();
  return signals.first();
}

TEST(StopSignals, RememberWhichWasFirst) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) {
    std::signal(signal, SIG_DFL);  // a shell starts its background jobs with SIGINT ignored
    std::atomic<int> reported = 0;
    const StopSignals signals([&](int first) { reported += first; });
    EXPECT_EQ(signals.first(), 0);
    send_to_process(signal);
    EXPECT_EQ(wait_for_first(signals), signal);
    while (reported == 0) std::this_thread::yield();
    EXPECT_EQ(reported, signal);
    for (const int again : {SIGTERM, SIGUSR1, SIGTERM}) send_to_process(again);
    EXPECT_EQ(signals.first(), signal);
  }
}

TEST(StopSignals, HandlePendingSignals) {
  block_stop_signals();
  send_to_process(SIGUSR1);
  {
    const StopSignals signals;
    EXPECT_EQ(wait_for_first(signals), SIGUSR1);
  }
  unblock_stop_signals();
}

TEST(StopSignals, HandleASecondOneToo) {
  const StopSignals signals;
  send_to_process(SIGUSR1);
  EXPECT_EQ(wait_for_first(signals), SIGUSR1);
  EXPECT_FALSE(signals.was_received(SIGTERM));
  send_to_process(SIGTERM);
  while (!signals.was_received(SIGTERM)) std::this_thread::yield();
  EXPECT_EQ(signals.first(), SIGUSR1);
}

// A signal frame that was written below a kernel's stack pointer has corrupted the heap.
TEST(StopSignals, NeverInterruptAThreadThatComputes) {
  const StopSignals signals;
  sigset_t blocked;
  std::thread([&] { pthread_sigmask(SIG_BLOCK, nullptr, &blocked); }).join();
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT, SIGHUP}) EXPECT_EQ(sigismember(&blocked, signal), 1) << signal;
}

TEST(StopSignalsDeathTest, LetASecondSigintEndTheProcess) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_DFL);
        const StopSignals signals;
        while (true) {
          send_to_process(SIGINT);
          wait_for_first(signals);
        }
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignalsDeathTest, LeaveItsStatusToAProcessThatIsEnding) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_DFL);
        { const StopSignals signals; }
        for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) send_to_process(signal);
        std::exit(75);
      },
      testing::ExitedWithCode(75), "");
}

TEST(StopSignalsDeathTest, EndAStartThatDoesNotEnd) {
  EXPECT_EXIT(
      {
        const StopSignals signals({}, 0.2);
        send_to_process(SIGTERM);
        while (true) ::pause();
      },
      testing::ExitedWithCode(75), "SIGTERM arrived 0 s ago, and the start has not ended");
}

TEST(StopSignals, LeaveARunAloneThatPollsThem) {
  const StopSignals signals({}, 0.1);
  signals.begin_polling();
  send_to_process(SIGTERM);
  EXPECT_EQ(wait_for_first(signals), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  EXPECT_EQ(signals.first(), SIGTERM);
}

TEST(StopSignals, LeaveAnIgnoredSigintIgnored) {
  std::signal(SIGINT, SIG_IGN);
  {
    const StopSignals signals;
    send_to_process(SIGINT);
    send_to_process(SIGUSR1);
    EXPECT_EQ(wait_for_first(signals), SIGUSR1);
  }
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace tutti
