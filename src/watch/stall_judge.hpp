#pragma once
// When a job that stands still is told of, and when it is ended: asked again and again with what is known of the ranks.

#include "late_ranks.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

struct StallFinding {
  enum class Kind {
    nothing,
    late,   // told once, in good time
    moves,  // again, after that
    stuck,  // stays until something moves
  };
  Kind kind = Kind::nothing;
  LateRanks late{};
  double still_seconds = 0;
};

class StallJudge {
 public:
  explicit StallJudge(std::int64_t now_ns) : still_since_ns_(now_ns) {}

  // `on_time`: the watch ran when it wanted to; else nobody may have, and time begins anew.
  struct Look {
    std::int64_t now_ns = 0;
    bool on_time = true;
    double timeout_seconds = 300;
  };
  StallFinding look(const Look& look, std::span<const RankView> ranks);

 private:
  bool has_moved(std::span<const RankView> ranks);

  std::int64_t still_since_ns_;
  std::vector<std::uint64_t> moves_;  // by place, when last looked at
  bool told_ = false;
  LateRanks told_of_{};
};

}  // namespace tutti
