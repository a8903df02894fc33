#pragma once
// The output of a run as it advances: a line for each finished epoch, and within an epoch a progress bar on a terminal
// or an occasional line elsewhere.

#include "tutti/base/log.hpp"
#include "tutti/base/timing.hpp"
#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/run_observer.hpp"

#include <cstdint>
#include <string>

namespace tutti {

// The line of a finished epoch; "test acc -" without a test result:
//   epoch 1/10, loss 0.5871, train acc 0.7912, test acc 0.8434, time 3.2 sec, 18750 images/s, lr 0.1
std::string epoch_line(const EpochReport& report);

// A warning for a network that predicts the same class for every image, as one with dead units does, or that knows the
// training images only. Empty while it learns. The training loss counts after a hundred steps, since a healthy run
// looks the same before; the test set counts after twenty.
std::string not_learning_warning(const EpochReport& report, int classes, const LrPlan& rate);

class ProgressBar {
 public:
  // Draws on stderr.
  void draw(const StepProgress& progress);
  // Clears the line, so that something else can be printed.
  void clear() { line_.clear(); }

 private:
  TerminalLine line_;
  Stopwatch since_first_;        // since first_step_, the first step seen of this epoch
  double seconds_per_step_ = 0;  // in the last epoch that shows it; 0: unknown
  std::int64_t first_step_ = 0;
  std::int64_t epoch_ = 0;
  Stopwatch since_loss_;
  TrainSums loss_;
};

// The bar's text: "epoch 2/5 [######..............] 142/313, loss 0.5871, 4 sec left". No loss without samples.
std::string progress_text(const StepProgress& progress, const TrainSums& loss, double seconds_per_step);

// Decides when a line is due, and makes it. Times are seconds since the first step began.
class ProgressLines {
 public:
  static constexpr double kMaxSeconds = 30;  // between two lines, unless a step takes longer

  // Call it after every step.
  void count(const StepProgress& progress);
  // Whether the next step might end later than kMaxSeconds after the last line.
  bool is_due(double now) const;
  // The line for the steps since the last one: "epoch 2/10, step 1420/3130, loss 0.5871, 18750 images/s, 12 min left".
  std::string text(double now, const TrainSums& loss);

 private:
  StepProgress progress_;
  std::int64_t steps_ = 0;  // since the first
  std::int64_t samples_ = 0;
  std::int64_t samples_before_ = 0;  // the last line, which was printed then
  double before_ = 0;
};

}  // namespace tutti
