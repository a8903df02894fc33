#pragma once
// Work of threads whose results are used in order.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

namespace tutti {

// Calls `next` until it returns nothing, does the work that it returns in threads, and passes the results to `use` in
// that order. Both are called in the calling thread. Throws the first error in the order of the work.
template <class Result>
void for_each_in_order(int threads, const std::function<std::function<Result()>()>& next,
                       const std::function<void(Result)>& use) {
  constexpr std::size_t kPerThread = 2;  // finished or in progress
  // Not a counting_semaphore: that of libstdc++ can sleep forever (GCC bug 98033).
  std::mutex mutex;
  std::condition_variable freed;
  int idle = threads;
  std::deque<std::future<Result>> pending;
  bool has_more = true;
  while (has_more || !pending.empty()) {
    if (has_more && pending.size() < kPerThread * static_cast<std::size_t>(threads)) {
      std::function<Result()> work = next();
      has_more = static_cast<bool>(work);
      if (!has_more) continue;
      pending.push_back(std::async(std::launch::async, [&, work = std::move(work)] {
        {
          std::unique_lock lock(mutex);
          freed.wait(lock, [&] { return idle > 0; });
          --idle;
        }
        const std::shared_ptr<void> turn(nullptr, [&](void*) {
          const std::lock_guard lock(mutex);
          ++idle;
          freed.notify_one();
        });
        return work();
      }));
    } else {
      use(pending.front().get());
      pending.pop_front();
    }
  }
}

}  // namespace tutti
