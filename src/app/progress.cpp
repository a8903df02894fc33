#include "progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

constexpr int kWidth = 20;
constexpr double kSecondsBetweenLosses = 1;

std::string loss_text(const TrainSums& loss) {
  return loss.samples > 0 ? fmt::format(", loss {:.4f}", loss.mean_loss()) : "";
}

std::string left_text(double seconds) {
  if (seconds < 100) return fmt::format("{:.0f} sec left", seconds);
  const auto minutes = static_cast<std::int64_t>(seconds / 60);
  return minutes < 100 ? fmt::format("{} min left", minutes)
                       : fmt::format("{} h {} min left", minutes / 60, minutes % 60);
}

// Whether a loss is not better than that of guessing.
bool is_loss_of_guessing(double loss, int classes) { return !(loss < 0.99 * std::log(static_cast<double>(classes))); }

// Whether the test loss and accuracy are those of guessing; the accuracy within three standard deviations.
bool is_at_chance(const LossSums& test, int classes) {
  if (test.samples == 0 || !is_loss_of_guessing(test.mean_loss(), classes)) return false;
  const double chance = 1.0 / classes;
  const double noise = std::sqrt(chance * (1 - chance) / static_cast<double>(test.samples));
  return std::abs(test.accuracy() - chance) <= 3 * noise;
}

// Training images that were seen several times are known, and test images are not.
bool is_overfitting(const EpochReport& report, int classes) {
  constexpr std::int64_t kFirstEpoch = 3;
  constexpr double kLeastGap = 0.25;
  return report.epoch >= kFirstEpoch && report.train.mean_loss() < 0.5 * std::log(static_cast<double>(classes)) &&
         is_loss_of_guessing(report.test->mean_loss(), classes) &&
         report.train.accuracy() - report.test->accuracy() > kLeastGap;
}

}  // namespace

std::string epoch_line(const EpochReport& report) {
  const std::size_t width = fmt::formatted_size("{}", report.epochs);
  const std::string test_accuracy = report.test ? fmt::format("{:.4f}", report.test->accuracy()) : "-";
  return fmt::format(
      "epoch {:>{}}/{}, loss {:.4f}, train acc {:.4f}, test acc {}, time {:.1f} sec, {:.0f} images/s, lr {:.6g}",
      report.epoch, width, report.epochs, report.train.mean_loss(), report.train.accuracy(), test_accuracy,
      report.seconds, report.images_per_second(), report.learning_rate);
}

std::string not_learning_warning(const EpochReport& report, int classes, const LrPlan& rate) {
  constexpr std::int64_t kFirstSteps = 100;
  constexpr std::int64_t kFirstTestedSteps = 20;
  if (classes < 2 || rate.base == 0) return {};
  const double guessing = std::log(static_cast<double>(classes));
  const bool learns = report.train.mean_loss() < 0.99 * guessing || report.train.accuracy() > 1.5 / classes;
  if (!learns && report.step >= kFirstSteps) {
    return fmt::format(
        "after {} steps the training loss, {:.4f}, is no better than guessing among {} classes ({:.4f}): the network "
        "learns nothing; start again with --lr below {} or --warmup-epochs above {}",
        report.step, report.train.mean_loss(), classes, guessing, rate.base, rate.warmup_epochs);
  }
  if (!report.test || report.test->samples == 0 || report.step < kFirstTestedSteps) return {};
  if (is_overfitting(report, classes)) {
    return fmt::format(
        "after {} steps the training accuracy is {:.4f}, the test accuracy {:.4f}, and the test loss, {:.4f}, no "
        "better than guessing ({:.4f}): the network is overfitting; use more images, other --augment steps, or "
        "--init-from the weights of another run",
        report.step, report.train.accuracy(), report.test->accuracy(), report.test->mean_loss(), guessing);
  }
  const bool trains = !is_loss_of_guessing(report.train.mean_loss(), classes);
  const bool settles = static_cast<double>(report.epoch) < 4 * rate.warmup_epochs;
  if (trains || settles || !is_at_chance(*report.test, classes)) return {};
  return fmt::format(
      "after {} steps the test loss, {:.4f}, and accuracy, {:.4f}, are no better than guessing among {} classes "
      "({:.4f} and {:.4f}); unless the next epochs learn, start again with --lr below {} or --warmup-epochs above {}",
      report.step, report.test->mean_loss(), report.test->accuracy(), classes, guessing, 1.0 / classes, rate.base,
      rate.warmup_epochs);
}

std::string progress_text(const StepProgress& progress, const TrainSums& loss, double seconds_per_step) {
  const double done = static_cast<double>(progress.step_in_epoch) / static_cast<double>(progress.steps_in_epoch);
  const auto filled = static_cast<std::size_t>(done * kWidth);
  const auto steps_left = static_cast<double>(progress.steps_in_epoch - progress.step_in_epoch);
  return fmt::format("epoch {}/{} [{:.<{}}] {}/{}{}{}", progress.epoch, progress.epochs, std::string(filled, '#'),
                     kWidth, progress.step_in_epoch, progress.steps_in_epoch, loss_text(loss),
                     seconds_per_step > 0 ? ", " + left_text(steps_left * seconds_per_step) : "");
}

void ProgressBar::draw(const StepProgress& progress) {
  const bool is_first = progress.epoch != epoch_;
  if (is_first) {
    epoch_ = progress.epoch;
    first_step_ = progress.step_in_epoch;
    since_first_.restart();
  }
  line_.draw([&] {
    if (progress.rank_loss && (is_first || since_loss_.seconds() >= kSecondsBetweenLosses)) {
      since_loss_.restart();
      loss_ = progress.rank_loss();
    }
    const std::int64_t steps = progress.step_in_epoch - first_step_;
    if (steps > 0) seconds_per_step_ = since_first_.seconds() / static_cast<double>(steps);
    return progress_text(progress, loss_, seconds_per_step_);
  });
}

void ProgressLines::count(const StepProgress& progress) {
  progress_ = progress;
  ++steps_;
  samples_ += progress.samples;
}

bool ProgressLines::is_due(double now) const {
  return now - before_ + now / static_cast<double>(std::max<std::int64_t>(1, steps_)) > kMaxSeconds;
}

std::string ProgressLines::text(double now, const TrainSums& loss) {
  const double seconds = now - before_;
  const double rate = seconds > 0 ? static_cast<double>(samples_ - samples_before_) / seconds : 0;
  const double seconds_per_step = now / static_cast<double>(std::max<std::int64_t>(1, steps_));
  before_ = now;
  samples_before_ = samples_;
  return fmt::format("epoch {}/{}, step {}/{}{}, {:.0f} images/s, {}", progress_.epoch, progress_.epochs,
                     progress_.step, progress_.steps, loss_text(loss), rate,
                     left_text(static_cast<double>(progress_.steps - progress_.step) * seconds_per_step));
}

}  // namespace tutti
