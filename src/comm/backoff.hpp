#pragma once
// Polling without occupying a core: with more ranks than cores, a spinning rank would keep the rank that it waits for
// from running.

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti {

// While waiting for other ranks to arrive, which may take long.
constexpr std::chrono::microseconds kMaxArrivalSleep{1000};
// While data is in transit: many MPI libraries make progress only while both sides call them.
constexpr std::chrono::microseconds kMaxTransferSleep{50};

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
