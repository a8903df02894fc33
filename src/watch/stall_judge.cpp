#include "stall_judge.hpp"

#include "tutti/watch/stall_watch.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

bool StallJudge::has_moved(std::span<const RankView> ranks) {
  moves_.resize(ranks.size());
  bool moved = false;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    const RankState& state = ranks[place].state;
    const std::uint64_t now = state.moves() + static_cast<std::uint64_t>(state.end);
    moved |= std::exchange(moves_[place], now) != now;
  }
  return moved;
}

StallFinding StallJudge::look(const Look& look, std::span<const RankView> ranks) {
  const bool moved = has_moved(ranks);
  const double still = static_cast<double>(look.now_ns - still_since_ns_) * 1e-9;
  if (moved || !look.on_time) {
    still_since_ns_ = look.now_ns;
    if (!moved || !std::exchange(told_, false)) return {};
    return {.kind = StallFinding::Kind::moves, .late = std::exchange(told_of_, {}), .still_seconds = still};
  }
  if (still < look.timeout_seconds / 2) return {};
  LateRanks late = late_ranks(ranks);
  if (late.places.empty()) return {};
  const auto is_traced = [](const RankView& rank) { return rank.state.activity == Activity::traced; };
  if (std::ranges::any_of(ranks, is_traced)) {
    still_since_ns_ = look.now_ns;
    return {};
  }
  const double timeout = look.timeout_seconds * (late.is_slow ? StallWatch::kSlowFactor : 1);
  if (still >= timeout) return {.kind = StallFinding::Kind::stuck, .late = std::move(late), .still_seconds = still};
  if (told_ || (late.is_slow && still < look.timeout_seconds)) return {};
  told_ = true;
  told_of_ = late;
  return {.kind = StallFinding::Kind::late, .late = std::move(late), .still_seconds = still};
}

}  // namespace tutti
