#pragma once
// How often a rank has come to where ranks meet, a vote or a sum, and how often it got through: what others can read
// while it waits there. All ranks of a job come to the same collectives in the same order.

#include <atomic>
#include <cstdint>

namespace tutti {

struct CollectiveCounter {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> done{0};
};

// One collective, from coming there to leaving.
class CollectiveScope {
 public:
  explicit CollectiveScope(CollectiveCounter& collectives) : collectives_(collectives) {
    collectives_.begun.fetch_add(1, std::memory_order_relaxed);
  }
  ~CollectiveScope() { collectives_.done.fetch_add(1, std::memory_order_relaxed); }
  CollectiveScope(const CollectiveScope&) = delete;
  CollectiveScope& operator=(const CollectiveScope&) = delete;

 private:
  CollectiveCounter& collectives_;
};

}  // namespace tutti
