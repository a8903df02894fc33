#include "tutti/train/progress_bar.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace tutti {
namespace {

constexpr double kSecondsBetweenDrawings = 0.1;
constexpr int kWidth = 30;

}  // namespace

std::string progress_text(const StepProgress& progress, double seconds_per_step) {
  const double done = static_cast<double>(progress.step_in_epoch) / static_cast<double>(progress.steps_in_epoch);
  const auto filled = static_cast<std::size_t>(done * kWidth);
  const auto steps_left = static_cast<double>(progress.steps_in_epoch - progress.step_in_epoch);
  return fmt::format("epoch {}/{} [{:.<{}}] {}/{}, {:.0f} sec left", progress.epoch, progress.epochs,
                     std::string(filled, '#'), kWidth, progress.step_in_epoch, progress.steps_in_epoch,
                     steps_left * seconds_per_step);
}

void ProgressBar::draw(const StepProgress& progress) {
  if (progress.epoch != epoch_) {
    epoch_ = progress.epoch;
    first_step_ = progress.step_in_epoch;
    since_first_.restart();
  }
  if (visible_ && since_drawn_.seconds() < kSecondsBetweenDrawings) return;
  since_drawn_.restart();
  visible_ = true;
  const std::int64_t steps = progress.step_in_epoch - first_step_;
  const double seconds_per_step = steps > 0 ? since_first_.seconds() / static_cast<double>(steps) : 0;
  fmt::print(stderr, "\r\x1b[K{}", progress_text(progress, seconds_per_step));
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!visible_) return;
  visible_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace tutti
