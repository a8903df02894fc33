#include "tutti/train/progress_bar.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace tutti {
namespace {

constexpr double kSecondsBetweenDrawings = 0.1;
constexpr int kWidth = 30;

}  // namespace

std::string progress_text(const StepProgress& progress, double seconds_so_far) {
  const double done = static_cast<double>(progress.step_in_epoch) / static_cast<double>(progress.steps_in_epoch);
  const auto filled = static_cast<std::size_t>(done * kWidth);
  const double seconds_left = done > 0 ? seconds_so_far * (1 - done) / done : 0;
  return fmt::format("epoch {}/{} [{:.<{}}] {}/{}, {:.0f} sec left", progress.epoch, progress.epochs,
                     std::string(filled, '#'), kWidth, progress.step_in_epoch, progress.steps_in_epoch, seconds_left);
}

void ProgressBar::draw(const StepProgress& progress) {
  if (progress.epoch != epoch_) {
    epoch_ = progress.epoch;
    since_epoch_.restart();
  }
  if (visible_ && since_drawn_.seconds() < kSecondsBetweenDrawings) return;
  since_drawn_.restart();
  visible_ = true;
  fmt::print(stderr, "\r\x1b[K{}", progress_text(progress, since_epoch_.seconds()));
  std::fflush(stderr);
}

void ProgressBar::clear() {
  if (!visible_) return;
  visible_ = false;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace tutti
