#pragma once
// The pending work, run in an order that is random except for dependencies. Nothing runs in the background: work runs
// when a caller waits or queries, and sometimes when work is enqueued.

#include "standin/random_source.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti::standin {

struct Operation;
// Reached when all of its operations are done.
using Point = std::vector<std::shared_ptr<Operation>>;

struct Operation {
  std::function<void()> work;
  std::function<bool()> can_run;  // empty: as soon as what comes before is done
  unsigned lane = 0;              // of which stream: some are quicker than others for a while
  std::string kind;               // as EnqueuedWork counts it; empty: not counted
  Point after;
  bool done = false;
  std::size_t missing = 0;
  Point followers;
};

bool reached(const Point& point);
// Adds `more`, except operations that are done or already there.
void join(Point& point, const Point& more);

class Schedule {
 public:
  void set_order(std::uint64_t seed);
  RandomSource& random() { return random_; }

  void add(const std::shared_ptr<Operation>& operation);
  // Runs one operation that may run. False when there is none.
  bool step();
  // Sometimes runs some operations.
  void dawdle();
  bool waits_for_others() const;  // work that can_run holds back
  bool empty() const { return pending_ == 0; }

 private:
  static constexpr std::size_t kLanes = 16;
  std::uint32_t weight(const Operation& operation) const { return weights_[operation.lane % kLanes]; }
  void change_mood();

  RandomSource random_{1};
  std::array<std::uint32_t, kLanes> weights_{};
  std::uint32_t eagerness_ = 0;  // of 8
  Point ready_;
  std::size_t pending_ = 0;
};

}  // namespace tutti::standin
