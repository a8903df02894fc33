#include "patience.hpp"

#include <algorithm>
#include <thread>

namespace tutti::mpi {
namespace {

constexpr int kYields = 300;

}  // namespace

void Patience::wait() {
  if (yields_ < kYields) {
    ++yields_;
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(sleep_);
  sleep_ = std::min(2 * sleep_, longest_sleep_);
}

void Patience::reset() {
  yields_ = 0;
  sleep_ = kFirstSleep;
}

void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep, std::source_location where) {
  Patience patience(longest_sleep);
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), where);
    if (done != 0) return;
    patience.wait();
  }
}

}  // namespace tutti::mpi
