#pragma once
// The age of this process, which is what users mean by the time a run has taken.

#include <functional>

namespace tutti {

// Since the moment at which the kernel started this process; it counts in hundredths of a second.
double seconds_since_process_start();

// Tells the same, cheaply.
std::function<double()> process_clock();

}  // namespace tutti
