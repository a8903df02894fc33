#pragma once
// Waiting by polling without holding a core: ranks may outnumber cores, and a rank that spins keeps the one
// it waits for from running.

#include <chrono>

namespace tutti {

// For another rank to arrive, which may take long.
constexpr std::chrono::microseconds kUntilArrival{1000};
// For data under way, which many libraries move only while both sides call them.
constexpr std::chrono::microseconds kUntilMoved{50};

class Backoff {
 public:
  explicit Backoff(std::chrono::microseconds longest_sleep) : longest_sleep_(longest_sleep) {}

  // Yields the first few hundred times, then sleeps, longer each time.
  void wait();
  void reset();

 private:
  std::chrono::microseconds longest_sleep_;
  std::chrono::microseconds sleep_ = kFirstSleep;
  int yields_ = 0;

  static constexpr std::chrono::microseconds kFirstSleep{20};
};

}  // namespace tutti
