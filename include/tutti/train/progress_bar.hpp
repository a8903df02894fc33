#pragma once
// How far an epoch has come, as one line on a terminal.

#include "tutti/base/stopwatch.hpp"
#include "tutti/base/terminal_line.hpp"
#include "tutti/train/run_observer.hpp"

#include <cstdint>
#include <string>

namespace tutti {

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
};

// The bar's text: "epoch 2/5 [#########...........] 142/313, 4 sec left".
std::string progress_text(const StepProgress& progress, double seconds_per_step);

}  // namespace tutti
