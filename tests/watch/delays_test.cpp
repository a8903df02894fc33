// Delays of known size, in every phase and on several ranks of real runs, are found again where they were.

#include "tutti/base/stopwatch.hpp"
#include "tutti/watch/time_account.hpp"

#include "support/mpi_world.hpp"
#include "train/rank_run.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

namespace tutti {
namespace {

constexpr int kSteps = 22;
constexpr int kWarmUp = 2;

struct Planned {
  Phase phase = Phase::data;
  int rank = 0;
  int times = 0;  // of the phase, from the first on
};

class Sleeper : public PlaceListener {
 public:
  explicit Sleeper(const Planned& planned) : planned_(planned) {}
  void on_begin(const Place& place) override {
    if (test_world().rank() != planned_.rank || place.phase != planned_.phase || times_ == planned_.times) return;
    ++times_;
    const Stopwatch watch;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    seconds += watch.seconds();
  }
  double seconds = 0;

 private:
  Planned planned_;
  int times_ = 0;
};

struct Course {
  std::vector<TimeShares> ranks;  // of all epochs
  std::optional<LateRank> worst;  // of any epoch
  double asked = 0;               // by another clock, when the last report was asked for
  double told = 0;                // and when it was there
  double slept = 0;               // on the late rank
};

class Reader : public RunObserver {
 public:
  explicit Reader(TimeAccount& account) : account_(account) {}
  void on_step(const StepProgress&) override { account_.count_step(); }
  void on_epoch_left(const EpochEnd&) override {
    course.asked = watch_.seconds();
    const TimeReport epoch = account_.report();
    course.told = watch_.seconds();
    course.ranks.resize(epoch.ranks.size());
    for (std::size_t rank = 0; rank < epoch.ranks.size(); ++rank) {
      for (std::size_t i = 0; i < kTimeShares; ++i) course.ranks[rank].seconds[i] += epoch.ranks[rank].seconds[i];
    }
    if (!course.worst || course.worst->seconds < epoch.latest->seconds) course.worst = epoch.latest;
  }
  Course course;

 private:
  TimeAccount& account_;
  Stopwatch watch_;
};

Course train(const Planned& planned, const DataPair& data) {
  World& world = test_world();
  TrainerOptions options;
  options.batch_size = 4 * world.size();
  options.num_parts = world.size();
  options.steps = kSteps;
  options.epochs = kSteps;
  options.checkpoint_every_steps = 3;
  Whereabouts whereabouts;
  RankRun run(world, built_in_model("mlp"), data, options, &whereabouts);
  for (int i = 0; i < kWarmUp; ++i) run.trainer.step();
  world.barrier();
  TimeAccount account(world, whereabouts);
  Reader reader(account);
  Sleeper sleeper(planned);
  whereabouts.add(sleeper);
  run.trainer.run(reader);
  reader.course.slept = all_gather_figures(world, {sleeper.seconds}).at(static_cast<std::size_t>(planned.rank)).front();
  return reader.course;
}

struct DelayCase {
  Phase phase;
  TimeShare share;
};

bool all_are_wanted() { return std::getenv("TUTTI_DELAYS") != nullptr; }

// All of them, or the first and the last.
std::vector<DelayCase> cases() {
  std::vector<DelayCase> all{{Phase::data, TimeShare::data},
                             {Phase::forward, TimeShare::compute},
                             {Phase::backward, TimeShare::compute},
                             {Phase::exchange, TimeShare::communication},
                             {Phase::update, TimeShare::compute},
                             {Phase::reports, TimeShare::other},
                             {Phase::evaluation, TimeShare::evaluation},
                             {Phase::checkpoint, TimeShare::checkpoint}};
  if (!all_are_wanted()) all.erase(all.begin() + 1, all.end() - 1);
  return all;
}

// Whether all ranks' times show it to within the tolerance. All ranks judge the same figures.
bool is_found(const DelayCase& one, int late, double tolerance, const DataPair& data) {
  const Course without = train({}, data);
  const Course with = train({one.phase, late, 4}, data);
  const double own = with.ranks[static_cast<std::size_t>(test_world().rank())].sum();
  EXPECT_GE(own, 0.98 * with.asked);
  EXPECT_LE(own, 1.02 * with.told);
  EXPECT_GT(with.slept, 0.79);
  bool found_all = with.worst->rank == late && with.worst->cause == one.share;
  for (int rank = 0; rank < test_world().size(); ++rank) {
    const auto place = static_cast<std::size_t>(rank);
    const TimeShare share = rank == late ? one.share : TimeShare::waiting;
    const double found = with.ranks[place][share] - without.ranks[place][share];
    found_all = found_all && std::abs(found - with.slept) <= tolerance * with.slept;
    if (test_world().rank() != 0) continue;
    fmt::print("{} of rank {}: {:.3f} of {:.3f} s found on rank {}\n", name_of(one.phase), late, found, with.slept,
               rank);
  }
  return found_all;
}

// On a machine with other things to do, ranks are late by more than what is planned: then it is tried again.
TEST(Delays, AreFoundOnTheirRankAndInTheirPhaseAndTheOthersWaitForIt) {
  constexpr int kTries = 10;
  const double tolerance = all_are_wanted() ? 0.05 : 0.25;
  const OwnedData data = open_small("synthetic:60x1x8x8:3");
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
