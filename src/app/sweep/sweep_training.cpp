#include "sweep_training.hpp"

#include "tutti/base/log.hpp"
#include "tutti/train/progress_bar.hpp"
#include "tutti/train/trainer.hpp"

#include "../abandon_at_end.hpp"
#include "../assemble.hpp"
#include "../checkpoint_choice.hpp"
#include "../plan_choices.hpp"
#include "../processors.hpp"
#include "../run_reporter.hpp"
#include "../terminal.hpp"

#include <algorithm>

namespace tutti {
namespace {

class SweepReporter : public RunObserver {
 public:
  SweepReporter(const World& world, const RunConfig& config, std::vector<EpochReport>& epochs) : epochs_(epochs) {
    if (world.rank() == 0 && draws_progress(config)) bar_.emplace();
  }

  void on_step(const StepProgress& progress) override {
    if (bar_) bar_->draw(progress);
  }
  void on_epoch(const EpochReport& report) override {
    epochs_.push_back(report);
    if (bar_) bar_->clear();
  }

 private:
  std::vector<EpochReport>& epochs_;
  std::optional<ProgressBar> bar_;
};

void train(World& working, const RunConfig& config, const TrainingPlace& place, SweepOutcome& outcome) {
  const Log silent(working.rank(), working.host(), true);
  Whereabouts whereabouts;
  if (place.watch != nullptr) whereabouts.publish_in(place.watch->place_slot());
  Assembly assembly = assemble(working, config, nullptr, silent);
  outcome.config = assembly.config;
  outcome.train_images = assembly.data.train->info().samples;
  const int threads = static_cast<int>(assembly.config.threads);
  outcome.oversubscribed = !working.agree(has_room_for(assembly.cores, working, threads));
  int& side_by_side = assembly.options.side_by_side;
  side_by_side = std::min(side_by_side, std::max(1, place.cores / threads));
  const AbandonAtEnd abandoning(place.watch, *assembly.communicator);
  std::optional<LoadedCheckpoint> weights;
  if (!config.init_from.empty()) weights = load_named_checkpoint(working, config.init_from, silent);
  const auto hosts = all_gather_text(working, working.host());
  std::optional<Trainer> trainer;
  build_alike(working, assembly.config, *assembly.backend, [&] {
    TrainerParts parts = assembly.parts();
    parts.whereabouts = &whereabouts;
    parts.hosts = hosts;
    trainer.emplace(parts, assembly.options, RunFacts{});
    if (weights) trainer->start_from(weights->state);
  });
  SweepReporter reporter(working, config, outcome.epochs);
  end_together(working, [&] { trainer->run(reporter); });
  whereabouts.enter(Phase::ending);
}

}  // namespace

std::optional<LossSums> SweepOutcome::test() const {
  const auto tested = std::ranges::find_if(epochs.rbegin(), epochs.rend(),
                                           [](const EpochReport& report) { return report.test.has_value(); });
  return tested == epochs.rend() ? std::nullopt : tested->test;
}

double SweepOutcome::seconds() const {
  double seconds = 0;
  for (const EpochReport& epoch : epochs) seconds += epoch.seconds;
  return seconds;
}

double SweepOutcome::images_per_second() const {
  std::int64_t images = 0;
  for (const EpochReport& epoch : epochs) images += epoch.train.samples;
  return seconds() > 0 ? static_cast<double>(images) / seconds() : 0;
}

SweepOutcome train_case(World& working, const RunConfig& config, const TrainingPlace& place) {
  SweepOutcome outcome;
  try {
    train(working, config, place, outcome);
  } catch (const Error& error) {
    if (error.reach() == ErrorReach::this_rank) throw;
    outcome.trouble = error;
  }
  return outcome;
}

}  // namespace tutti
