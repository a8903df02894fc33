#pragma once
// Polls without holding a core: ranks may outnumber cores, and a rank that spins keeps the one it waits for from
// running.

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti {

// For another rank to arrive, which may take long.
constexpr std::chrono::microseconds kUntilArrival{1000};
// For data under way, which many libraries move only while both sides call them.
constexpr std::chrono::microseconds kUntilMoved{50};

class Backoff {
 public:
  explicit Backoff(std::chrono::microseconds longest_sleep) : longest_sleep_(longest_sleep) {}

  // Yields the first few hundred times, then sleeps, longer each time.
  void wait() {
    if (yields_ < kYields) {
      ++yields_;
      std::this_thread::yield();
      return;
    }
    std::this_thread::sleep_for(sleep_);
    sleep_ = std::min(2 * sleep_, longest_sleep_);
  }
  void reset() {
    yields_ = 0;
    sleep_ = kFirstSleep;
  }

 private:
  static constexpr int kYields = 300;
  static constexpr std::chrono::microseconds kFirstSleep{20};

  std::chrono::microseconds longest_sleep_;
  std::chrono::microseconds sleep_ = kFirstSleep;
  int yields_ = 0;
};

}  // namespace tutti
