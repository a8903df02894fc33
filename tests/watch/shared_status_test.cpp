#include "watch/shared_status.hpp"

#include "watch/rank_watcher.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <thread>

namespace tutti {
namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;

// A process that sleeps, or repeats an action, until it is killed.
class Sleeper {
 public:
  template <class Action>
  explicit Sleeper(Action action) : process_(::fork()) {
    while (process_ == 0) action();
  }
  Sleeper() : Sleeper(::pause) {}
  ~Sleeper() { kill(SIGKILL); }

  pid_t process() const { return process_; }
  void kill(int signal) {
    if (process_ <= 0) return;
    ::kill(process_, signal);
    ::waitpid(process_, nullptr, signal == SIGSTOP ? WUNTRACED : 0);
    if (signal == SIGKILL) process_ = 0;
  }

 private:
  pid_t process_;
};

class OwnStatus : public ::testing::Test {
 protected:
  std::unique_ptr<World> world_ = make_solo_world();
  SharedStatus shared_{*world_};
};

TEST_F(OwnStatus, ReportsProgressAndQuietTime) {
  shared_.begin(0);
  shared_.own().status.progress += 1;
  EXPECT_EQ(shared_.read(kSecondNs).front().quiet_seconds, 0);
  EXPECT_EQ(shared_.read(3 * kSecondNs).front().quiet_seconds, 2);
  shared_.own().collectives.begun += 1;
  EXPECT_EQ(shared_.read(4 * kSecondNs).front().quiet_seconds, 0);
}

TEST_F(OwnStatus, HasItsOnlyRankAsLeaderUntilThatFinishes) {
  shared_.begin(now_ns());
  EXPECT_TRUE(shared_.is_host_leader(now_ns()));
  shared_.own().end = RankEnd::finished;
  EXPECT_FALSE(shared_.is_host_leader(now_ns()));
}

TEST_F(OwnStatus, ReportsDeadProcessesUnlessTheirRanksHadFinished) {
  Sleeper sleeper;
  shared_.own().process = sleeper.process();
  shared_.own().started = read_process(sleeper.process())->started;
  shared_.begin(0);
  EXPECT_EQ(shared_.find_gone(0), nullptr);
  sleeper.kill(SIGKILL);
  const RankState* const exited = shared_.find_gone(0);
  ASSERT_NE(exited, nullptr);
  EXPECT_EQ(exited->activity, Activity::gone);
  shared_.own().end = RankEnd::finished;
  EXPECT_EQ(shared_.find_gone(0), nullptr);
}

TEST_F(OwnStatus, DoesNotTakeAnotherProcessOfThatNumberForTheRank) {
  shared_.own().process = ::getppid();
  shared_.begin(0);
  shared_.own().process = 0x3fffffff;
  EXPECT_EQ(shared_.find_gone(0), nullptr);
}

TEST_F(OwnStatus, MeasuresActivityOverIntervalsOfHalfTheQuietThreshold) {
  shared_.begin(0);
  shared_.set_quiet_threshold(2);
  EXPECT_EQ(shared_.read(2 * kSecondNs).front().activity, Activity::unknown);
  EXPECT_EQ(shared_.read(5 * kSecondNs / 2).front().activity, Activity::unknown);
  EXPECT_NE(shared_.read(3 * kSecondNs).front().activity, Activity::unknown);
}

TEST(RankWatcher, LetsAnotherRankReportTheEndWhenTheFirstDidNot) {
  const auto world = make_solo_world();
  RankWatcher watch(*world, "", {});
  EXPECT_TRUE(watch.claim_end(100 * kSecondNs));
  EXPECT_FALSE(watch.claim_end(105 * kSecondNs));
  EXPECT_TRUE(watch.claim_end(111 * kSecondNs));
}

TEST(ProcessActivity, DistinguishesStoppedFromAsleepAndGone) {
  Sleeper sleeper;
  ActivityMeter meter;
  const auto measured = [&](double seconds) {
    return meter.measure(sleeper.process(), static_cast<std::int64_t>(seconds * 1e9), true);
  };
  while (read_process(sleeper.process())->state != 'S') std::this_thread::yield();
  EXPECT_EQ(measured(0), Activity::unknown);
  EXPECT_EQ(measured(1), Activity::idle);
  sleeper.kill(SIGSTOP);
  EXPECT_EQ(measured(2), Activity::stopped);
  EXPECT_EQ(meter.measure(sleeper.process(), 2, false), Activity::unknown);
  const pid_t process = sleeper.process();
  sleeper.kill(SIGKILL);
  EXPECT_EQ(meter.measure(process, 4 * kSecondNs, true), Activity::gone);
}

TEST(ProcessActivity, ReportsThatAProcessComputes) {
  ActivityMeter meter;
  meter.measure(::getpid(), 0, true);
  const double before = read_process(::getpid())->cpu_seconds;
  while (read_process(::getpid())->cpu_seconds < before + 0.1) continue;
  const Activity measured = meter.measure(::getpid(), kSecondNs, true);
  EXPECT_TRUE(measured == Activity::computing || measured == Activity::waiting_for_core) << name_of(measured);
}

void compute(int policy) {
  const sched_param parameters{};
  ::sched_setscheduler(0, policy, &parameters);
  while (true) continue;
}

TEST(ProcessActivity, ReportsThatAProcessWaitsForACore) {
  cpu_set_t before;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const Sleeper user([] { compute(SCHED_OTHER); });
  const Sleeper other([] { compute(SCHED_IDLE); });
  ::sched_setaffinity(0, sizeof before, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ActivityMeter meter;
  meter.measure(other.process(), 0, true);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_EQ(meter.measure(other.process(), kSecondNs, true), Activity::waiting_for_core);
}

}  // namespace
}  // namespace tutti
