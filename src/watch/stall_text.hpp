#pragma once
// What people are told of late ranks: a sentence, and a table of all ranks.

#include "late_ranks.hpp"

#include <span>
#include <string>

namespace tutti {

// "rank 2 on n1 is late: in forward of step 17 for 15.0 s, computing; 3 ranks wait for it". `stuck`: so it is.
std::string late_text(const LateRanks& late, std::span<const RankView> ranks, bool stuck);
// Who was late and is not any more.
std::string arrival_text(const LateRanks& late, std::span<const RankView> ranks, double still_seconds);
// Lines of it; neighbours that are alike make one.
std::string table_text(const LateRanks& late, std::span<const RankView> ranks);

}  // namespace tutti
