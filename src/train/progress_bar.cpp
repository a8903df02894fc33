#include "tutti/train/progress_bar.hpp"

#include <fmt/format.h>

namespace tutti {
namespace {

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
  line_.draw([&] {
    const std::int64_t steps = progress.step_in_epoch - first_step_;
    const double seconds_per_step = steps > 0 ? since_first_.seconds() / static_cast<double>(steps) : 0;
    return progress_text(progress, seconds_per_step);
  });
}

}  // namespace tutti
