#pragma once
// Wall time since construction or restart(), processor time, and the quartiles of measured times.

#include <chrono>
#include <vector>

namespace tutti {

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

// The processor time of the calling thread, and of all threads of this process.
double thread_cpu_seconds();
double process_cpu_seconds();

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};

// Requires at least one value; interpolates linearly between two values.
Quartiles quartiles_of(std::vector<double> values);

}  // namespace tutti
