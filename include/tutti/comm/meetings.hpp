#pragma once
// How often a rank has come to where ranks meet, a vote or a sum, and how often it got through: what others can read
// while it waits there. All ranks of a job come to the same meetings in the same order.

#include <atomic>
#include <cstdint>

namespace tutti {

struct Meetings {
  std::atomic<std::uint64_t> begun{0};
  std::atomic<std::uint64_t> done{0};
};

// One meeting, from coming there to leaving.
class Meeting {
 public:
  explicit Meeting(Meetings& meetings) : meetings_(meetings) {
    meetings_.begun.fetch_add(1, std::memory_order_relaxed);
  }
  ~Meeting() { meetings_.done.fetch_add(1, std::memory_order_relaxed); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

 private:
  Meetings& meetings_;
};

}  // namespace tutti
