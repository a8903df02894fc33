#include "stop_signals.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <csignal>

namespace tutti {
namespace {

TEST(StopSignals, TellWhichCameFirst) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    const StopSignals signals;
    EXPECT_EQ(signals.first(), 0);
    std::raise(signal);
    EXPECT_EQ(signals.first(), signal);
    std::raise(SIGTERM);
    std::raise(SIGUSR1);
    std::raise(SIGTERM);
    EXPECT_EQ(signals.first(), signal);
  }
}

TEST(StopSignalsDeathTest, LetASecondInterruptEndTheProcess) {
  const StopSignals signals;
  EXPECT_EXIT(
      {
        std::raise(SIGTERM);
        std::raise(SIGINT);
        if (signals.first() == SIGTERM) std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(StopSignalsDeathTest, GiveBackWhatSignalsDidBefore) {
  EXPECT_EXIT(
      {
        { const StopSignals signals; }
        std::raise(SIGUSR1);
      },
      testing::KilledBySignal(SIGUSR1), "");
}

TEST(StopSignals, LeaveAnIgnoredInterruptIgnored) {
  std::signal(SIGINT, SIG_IGN);
  {
    const StopSignals signals;
    std::raise(SIGINT);
    EXPECT_EQ(signals.first(), 0);
  }
  EXPECT_EQ(std::signal(SIGINT, SIG_DFL), SIG_IGN);
}

TEST(StopSignals, HaveOneListenerAtATime) {
  const StopSignals signals;
  EXPECT_THROW(StopSignals(), Error);
  std::raise(SIGUSR1);
  EXPECT_EQ(signals.first(), SIGUSR1);
}

}  // namespace
}  // namespace tutti
