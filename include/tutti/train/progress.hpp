#pragma once
// What a run prints as it advances: a line for each finished epoch, and within an epoch one line that is drawn over
// itself on a terminal, or lines now and then where there is none.

#include "tutti/base/log.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/run_observer.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// The line of a finished epoch, without a test result "test acc -":
//   epoch 1/10, loss 0.5871, train acc 0.7912, test acc 0.8434, time 3.2 sec, 18750 images/s, lr 0.1
std::string epoch_line(const EpochReport& report);

// A warning for a network that gives the same answer for every image, as one whose units have died does for good.
// Empty where it learns. The training loss of the first hundred steps does not count, since a sound run looks alike
// then; the test set counts after twenty.
std::string guessing_text(const EpochReport& report, int classes, const LrPlan& rate);

class ProgressBar {
 public:
  // Draws on stderr.
  void draw(const StepProgress& progress);
  // Wipes the line, so that something else can be printed in its place.
  void clear() { line_.clear(); }

 private:
  TerminalLine line_;
  Stopwatch since_first_;  // step seen of this epoch
  std::int64_t first_step_ = 0;
  std::int64_t epoch_ = 0;
  Stopwatch since_loss_;
  LossSums loss_;
};

// The bar's text: "epoch 2/5 [######..............] 142/313, loss 0.5871, 4 sec left". No loss without samples.
std::string progress_text(const StepProgress& progress, const LossSums& loss, double seconds_per_step);

// When a line is due, and what is in it. Times are seconds since the first step began.
class ProgressLines {
 public:
  static constexpr double kMostSeconds = 30;  // between two lines, if the steps are shorter

  // To be called after every step.
  void count(const StepProgress& progress);
  // Whether waiting for one more step might be too long.
  bool is_due(double now) const;
  // Of the steps since the last line: "epoch 2/10, step 1420/3130, loss 0.5871, 18750 images/s, 12 min left".
  std::string text(double now, const LossSums& loss);

 private:
  StepProgress progress_;
  std::int64_t steps_ = 0;  // since the first
  std::int64_t samples_ = 0;
  std::int64_t samples_before_ = 0;  // the last line, which was printed then
  double before_ = 0;
};

}  // namespace tutti
