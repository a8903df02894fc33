#pragma once
// The line that a finished epoch prints: aligned, greppable, the words of the multi-GPU tutorials.
//
//   epoch 1/10, loss 0.5871, train acc 0.7912, test acc 0.8434, time 3.2 sec, 18750 images/s, lr 0.1

#include "tutti/train/lr_schedule.hpp"
#include "tutti/train/run_observer.hpp"

#include <string>

namespace tutti {

// Without a test figure: "test acc -".
std::string epoch_line(const EpochReport& report);

// A warning for a network that gives the same answer for every image, as one whose units have died does for good.
// Empty where it learns. The training loss of the first hundred steps does not count, since a sound run looks alike
// then; the test set counts after twenty.
std::string guessing_text(const EpochReport& report, int classes, const LrPlan& rate);

}  // namespace tutti
