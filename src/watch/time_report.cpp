#include "tutti/watch/time_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tutti {

const char* name_of(TimeShare share) {
  switch (share) {
    case TimeShare::data:
      return "data";
    case TimeShare::compute:
      return "compute";
    case TimeShare::communication:
      return "communication";
    case TimeShare::waiting:
      return "waiting";
    case TimeShare::evaluation:
      return "evaluation";
    case TimeShare::checkpoint:
      return "checkpoint";
    case TimeShare::other:
      return "other";
  }
  return "unknown";
}

double TimeShares::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

TimeShares TimeReport::mean() const {
  TimeShares mean;
  for (const TimeShares& rank : ranks) {
    for (std::size_t i = 0; i < kTimeShares; ++i)
      mean.seconds[i] += rank.seconds[i] / static_cast<double>(ranks.size());
  }
  return mean;
}

bool is_worth_a_look(const TimeReport& report) {
  constexpr double kTenth = 0.1;
  const TimeShares mean = report.mean();
  return std::max(mean[TimeShare::waiting], mean[TimeShare::data]) > kTenth * mean.sum();
}

void TimeTotal::add(const TimeReport& report) {
  ranks_.resize(report.ranks.size());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t i = 0; i < kTimeShares; ++i) ranks_[rank].seconds[i] += report.ranks[rank].seconds[i];
  }
  if (!report.latest) return;
  const auto [late, is_new] = late_.try_emplace(report.latest->rank, *report.latest);
  if (!is_new) late->second.seconds += report.latest->seconds;
}

TimeReport TimeTotal::report() const {
  TimeReport whole{.ranks = ranks_, .latest = {}};
  for (const auto& [rank, late] : late_) {
    if (!whole.latest || late.seconds > whole.latest->seconds) whole.latest = late;
  }
  return whole;
}

std::string time_line(const TimeReport& report) {
  const TimeShares mean = report.mean();
  std::string line = fmt::format("time {:.1f} s:", report.seconds());
  for (std::size_t i = 0; i < kTimeShares; ++i) {
    const auto share = static_cast<TimeShare>(i);
    line += fmt::format("{} {} {:.0f} %", i == 0 ? "" : ",", name_of(share), 100 * mean[share] / mean.sum());
    if (share != TimeShare::waiting || !report.latest) continue;
    const LateRank& latest = *report.latest;
    line += fmt::format(" ({:.1f} s for rank {} on {}: {})", latest.seconds, latest.rank, latest.host,
                        name_of(latest.cause));
  }
  return line;
}

}  // namespace tutti
