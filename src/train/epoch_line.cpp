#include "tutti/train/epoch_line.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tutti {

namespace {

// Within three standard deviations of what guessing gives.
bool guesses(const LossSums& test, int classes) {
  if (classes < 2 || test.samples == 0 || test.mean_loss() < 0.99 * std::log(static_cast<double>(classes)))
    return false;
  const double chance = 1.0 / classes;
  const double noise = std::sqrt(chance * (1 - chance) / static_cast<double>(test.samples));
  return std::abs(test.accuracy() - chance) <= 3 * noise;
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

std::string guessing_text(const EpochReport& report, int classes, const LrPlan& rate) {
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
  if (!report.test || !guesses(*report.test, classes) || report.step < kFirstTestedSteps) return {};
  return fmt::format(
      "after {} steps the test loss, {:.4f}, and accuracy, {:.4f}, are no better than guessing among {} classes "
      "({:.4f} "
      "and {:.4f}); unless the next epochs learn, start again with --lr below {} or --warmup-epochs above {}",
      report.step, report.test->mean_loss(), report.test->accuracy(), classes, guessing, 1.0 / classes, rate.base,
      rate.warmup_epochs);
}

}  // namespace tutti
