#include "backoff.hpp"

#include <algorithm>
#include <thread>

namespace tutti {
namespace {

constexpr int kYields = 300;

}  // namespace

void Backoff::wait() {
  if (yields_ < kYields) {
    ++yields_;
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_sleep_);
}

void Backoff::reset() {
  yields_ = 0;
  sleep_ = kFirstSleep;
}

}  // namespace tutti
