#include "standin/schedule.hpp"

#include <algorithm>
#include <utility>

namespace tutti::standin {

bool reached(const Point& point) {
  return std::ranges::all_of(point, [](const auto& operation) { return operation->done; });
}

void join(Point& point, const Point& more) {
  std::erase_if(point, [](const auto& operation) { return operation->done; });
  for (const auto& operation : more) {
    if (!operation->done && std::ranges::find(point, operation) == point.end()) point.push_back(operation);
  }
}

void Schedule::set_order(std::uint64_t seed) {
  random_ = RandomSource(seed);
  change_mood();
}

// Which streams run ahead, and whether work runs at once or late.
void Schedule::change_mood() {
  for (std::uint32_t& weight : weights_) weight = 1U << (4 * random_.below(4));
  constexpr std::array<std::uint32_t, 4> kEagerness = {0, 0, 1, 6};
  eagerness_ = kEagerness[random_.below(kEagerness.size())];
}

void Schedule::add(const std::shared_ptr<Operation>& operation) {
  ++pending_;
  for (const auto& before : operation->after) {
    if (before->done) continue;
    before->followers.push_back(operation);
    ++operation->missing;
  }
  operation->after.clear();
  if (operation->missing == 0) ready_.push_back(operation);
  dawdle();
}

bool Schedule::step() {
  if (random_.below(32) == 0) change_mood();
  Point candidates = ready_;
  std::erase_if(candidates, [](const auto& operation) { return operation->can_run && !operation->can_run(); });
  if (candidates.empty()) return false;
  std::uint64_t total = 0;
  for (const auto& operation : candidates) total += weight(*operation);
  std::uint64_t left = random_.next() % total;
  std::size_t chosen = 0;
  while (left >= weight(*candidates[chosen])) left -= weight(*candidates[chosen++]);

  const std::shared_ptr<Operation> operation = candidates[chosen];
  ready_.erase(std::ranges::find(ready_, operation));
  --pending_;
  operation->done = true;  // even if it fails
  for (const auto& follower : std::exchange(operation->followers, {})) {
    if (--follower->missing == 0) ready_.push_back(follower);
  }
  std::exchange(operation->work, {})();
  return true;
}

void Schedule::dawdle() {
  while (random_.below(8) < eagerness_ && step()) continue;
}

bool Schedule::waits_for_others() const {
  return std::ranges::any_of(ready_, [](const auto& operation) { return static_cast<bool>(operation->can_run); });
}

}  // namespace tutti::standin
