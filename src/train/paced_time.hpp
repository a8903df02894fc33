#pragma once
// Time that is slept through in measured portions. What a sleep overshoots, the next one makes good.

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace tutti {

class PacedTime {
 public:
  // Until so many seconds have gone by since the last call here, less what was overslept. Returns what it took.
  double sleep(double seconds) {
    const auto until = last_ + std::chrono::duration_cast<Clock::duration>(
                                   std::chrono::duration<double>(std::max(0.0, seconds - overslept_)));
    std::this_thread::sleep_until(until);
    const double took = lap();
    overslept_ += took - seconds;
    return took;
  }
  // Since the last call here.
  double lap() {
    const auto now = Clock::now();
    return std::chrono::duration<double>(now - std::exchange(last_, now)).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  double overslept_ = 0;
};

}  // namespace tutti
