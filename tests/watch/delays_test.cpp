// Delays of known length, in every phase and on different ranks of real runs, are reported on the right rank and in the
// right phase, compared with epochs of the same run without delays.

#include "tutti/base/timing.hpp"
#include "tutti/watch/time_profile.hpp"

#include "support/mpi_world.hpp"
#include "train/rank_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tutti {
namespace {

constexpr int kEpochs = 14;  // of a step each
constexpr std::int64_t kWarmUp = 2;
constexpr int kDelays = 5;  // one an epoch

struct Planned {
  Phase phase = Phase::data;
  int rank = 0;
};

class Sleeper : public PhaseListener {
 public:
  explicit Sleeper(const Planned& planned) : planned_(planned) {}
  void on_begin(const StepPhase& at) override {
    if (test_world().rank() != planned_.rank || at.phase != planned_.phase) return;
    if (at.step <= std::max(kWarmUp, last_) || times_ == kDelays) return;
    last_ = at.step;
    ++times_;
    const Stopwatch watch;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    seconds += watch.seconds();
  }
  double seconds = 0;  // total

 private:
  Planned planned_;
  std::int64_t last_ = 0;  // step
  int times_ = 0;
};

struct RunTimes {
  std::vector<std::vector<TimeShares>> epochs;  // by rank
  std::optional<LongestWait> worst;             // of any epoch
  double requested = 0;                         // when the last report was requested, by another clock
  double reported = 0;                          // when it was returned
  std::vector<double> slept;                    // on the late rank, by the end of each epoch
};

class Reader : public RunObserver {
 public:
  Reader(TimeProfile& time_profile, const Sleeper& sleeper) : time_profile_(time_profile), sleeper_(sleeper) {}
  void on_step(const StepProgress&) override { time_profile_.count_step(); }
  void on_epoch_end(const EpochEnd&) override {
    times.requested = watch_.seconds();
    const TimeReport epoch = time_profile_.report();
    times.reported = watch_.seconds();
    times.epochs.push_back(epoch.ranks);
    times.slept.push_back(sleeper_.seconds);
    if (!times.worst || times.worst->seconds < epoch.longest_wait->seconds) times.worst = epoch.longest_wait;
  }
  RunTimes times;

 private:
  TimeProfile& time_profile_;
  const Sleeper& sleeper_;
  Stopwatch watch_;
};

RunTimes train(const Planned& planned, const DataPair& data) {
  World& world = test_world();
  const TrainerOptions options{
      .batch_size = 4 * world.size(), .num_parts = world.size(), .epochs = kEpochs, .checkpoint_every_steps = 1};
  RankStatus rank_status;
  RankRun run(world, built_in_model("mlp"), data, options, &rank_status);
  TimeProfile time_profile(world, rank_status);
  Sleeper sleeper(planned);
  Reader reader(time_profile, sleeper);
  rank_status.add(sleeper);
  run.trainer.run(reader);
  reader.times.slept = all_gather_doubles(world, reader.times.slept).at(static_cast<std::size_t>(planned.rank));
  return reader.times;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// A rank's median seconds in epochs with a delay minus those in epochs without.
double more_with_delay(const RunTimes& times, std::size_t rank, TimeShare share) {
  std::vector<double> without;
  std::vector<double> with;
  for (std::size_t epoch = kWarmUp; epoch < times.epochs.size(); ++epoch) {
    const bool delayed = times.slept[epoch] > times.slept[epoch - 1];
    (delayed ? with : without).push_back(times.epochs[epoch][rank][share]);
  }
  return median(std::move(with)) - median(std::move(without));
}

struct DelayCase {
  Phase phase;
  TimeShare share;
};

bool runs_all_cases() { return std::getenv("TUTTI_DELAYS") != nullptr; }

// All cases, or the first and the last.
std::vector<DelayCase> cases() {
  std::vector<DelayCase> all{{Phase::data, TimeShare::data},
                             {Phase::forward, TimeShare::compute},
                             {Phase::backward, TimeShare::compute},
                             {Phase::exchange, TimeShare::communication},
                             {Phase::update, TimeShare::compute},
                             {Phase::reports, TimeShare::other},
                             {Phase::evaluation, TimeShare::evaluation},
                             {Phase::checkpoint, TimeShare::checkpoint}};
  if (!runs_all_cases()) all.erase(all.begin() + 1, all.end() - 1);
  return all;
}

// Whether all ranks' times show the delay to within the tolerance. All ranks compare the same numbers.
bool is_found(const DelayCase& one, int late, double tolerance, const DataPair& data) {
  const RunTimes times = train({one.phase, late}, data);
  double own = 0;
  for (const auto& epoch : times.epochs) own += epoch[static_cast<std::size_t>(test_world().rank())].sum();
  EXPECT_GE(own, 0.98 * times.requested);
  EXPECT_LE(own, 1.02 * times.reported);
  const double slept = times.slept.back() / kDelays;
  EXPECT_GT(slept, 0.19);
  bool found_all = times.worst->rank == late && times.worst->cause == one.share;
  for (int rank = 0; rank < test_world().size(); ++rank) {
    const TimeShare share = rank == late ? one.share : TimeShare::waiting;
    const double found = more_with_delay(times, static_cast<std::size_t>(rank), share);
    found_all = found_all && std::abs(found - slept) <= tolerance * slept;
    if (test_world().rank() != 0) continue;
    fmt::print("{} of rank {}: {:.3f} of {:.3f} s found on rank {}\n", name_of(one.phase), late, found, slept, rank);
  }
  return found_all;
}

// On a busy machine ranks are delayed by more than the planned delay, so the test retries.
TEST(Delays, AreFoundOnTheirRankAndInTheirPhaseAndTheOthersWaitForIt) {
  constexpr int kTries = 10;
  const double tolerance = runs_all_cases() ? 0.05 : 0.25;
  const OwnedData data = open_small(fmt::format("synthetic:{}x1x8x8:3", 4 * test_world().size()));
  for (const DelayCase& one : cases()) {
    for (const int late : {1, test_world().size() - 1}) {
      int tries = 1;
      while (tries < kTries && !is_found(one, late, tolerance, data.pair)) ++tries;
      EXPECT_LT(tries, kTries) << name_of(one.phase) << " of rank " << late;
    }
  }
}

}  // namespace
}  // namespace tutti
