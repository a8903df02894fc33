// A short training on all ranks, and once more on one.

#include "tutti/base/digest.hpp"

#include "../bench/bench.hpp"
#include "../processors.hpp"
#include "../several.hpp"
#include "station.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tutti {
namespace {

class LastEpoch : public RunObserver {
 public:
  void on_epoch(const EpochReport& report) override {
    seconds_ += report.seconds;
    images_ += report.train.samples;
    last_ = report;
  }
  const EpochReport& report() const { return last_; }
  double seconds() const { return seconds_; }
  double images_per_second() const { return seconds_ > 0 ? static_cast<double>(images_) / seconds_ : 0; }

 private:
  EpochReport last_;
  double seconds_ = 0;
  std::int64_t images_ = 0;
};

LastEpoch train(World& world, Trainer& trainer) {
  LastEpoch told;
  end_together(world, [&] { trainer.run(told); });
  return told;
}

std::string row_of(int ranks, const LastEpoch& told) {
  const EpochReport& report = told.report();
  const std::string test = report.test ? fmt::format("{:.4f}", report.test->accuracy()) : "-";
  return fmt::format("{:<9} {:>6} {:>9.4f} {:>10.4f} {:>9} {:>9.2f} {:>9.0f}   {}", several(ranks, "rank"), report.step,
                     report.train.mean_loss(), report.train.accuracy(), test, told.seconds(), told.images_per_second(),
                     digest_text(report.weights_digest));
}

// The same parts on rank 0 alone, as a job of one rank would play them, while the others sleep. Its report is rank 0's.
LastEpoch train_alone(Tour& tour) {
  std::optional<LastEpoch> told;
  on_first_ranks(tour.world, 1, [&](World& alone) {
    WatchedRun run(alone, tour.config, tour.whereabouts, tour.watch);
    told = train(alone, *run.trainer);
  });
  return told.value_or(LastEpoch());
}

bool all_alike(World& world, const Backend& backend) {
  const auto kinds = all_gather_text(world, backend.description());
  return std::ranges::count(kinds, kinds.front()) == std::ssize(kinds);
}

}  // namespace

void show_training(Tour& tour, Screen& screen) {
  TrainerOptions& options = tour.run->assembly.options;
  options.exchange = {.kind = Exchange::exact};
  options.test_every_epochs = 1;
  tour.whereabouts.enter(Phase::starting);
  tour.run->begin_anew(tour.world, &tour.whereabouts);
  const LastEpoch together = train(tour.world, *tour.run->trainer);
  screen.say(fmt::format(
      "{} trained from the beginning with --parts {} --exchange exact, for {}{}.", several(tour.world.size(), "rank"),
      options.num_parts, several(together.report().step, "step"),
      tour.world.size() == 1 ? "" : "; then rank 0 did all of it once more, alone, while the others slept"));
  screen.blank();
  screen.line(fmt::format("{:<9} {:>6} {:>9} {:>10} {:>9} {:>9} {:>9}   {}", "", "steps", "loss", "train acc",
                          "test acc", "seconds", "images/s", "digest of the weights"));
  screen.line(row_of(tour.world.size(), together));
  if (tour.world.size() == 1) {
    screen.blank();
    screen.say(
        fmt::format("More ranks end with the weights of one if they play the same parts: mpirun -np 4 {0} tour shows "
                    "the weights of {0} tour --parts 4.",
                    short_call()));
    return;
  }
  const bool alike = all_alike(tour.world, *tour.run->assembly.backend);
  tour.config.parts = options.num_parts;
  tour.config.threads = options.threads;
  tour.config.exchange = "exact";
  tour.config.test_every = 1;
  const std::string crowding = crowding_text(tour);
  tour.run.reset();
  const LastEpoch alone = train_alone(tour);
  screen.line(row_of(1, alone));
  screen.blank();
  const bool same = tour.world.rank() != 0 || alone.report().weights_digest == together.report().weights_digest;
  tour.is_right = tour.is_right && (same || !alike);
  if (same) {
    screen.say(
        "The same loss, the same accuracy, and the same bits in every weight: how many ranks play the parts of a "
        "batch changes how long it takes, and nothing else." +
        crowding);
  } else {
    screen.say(alike ? "The weights differ, and should not: please report this."
                     : "The weights differ, as these ranks compute on different kinds of processors, which round "
                       "differently. The accuracies are alike.");
  }
}

}  // namespace tutti
