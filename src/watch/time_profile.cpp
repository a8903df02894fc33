#include "tutti/watch/time_profile.hpp"

#include "tutti/base/timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <ranges>
#include <utility>

namespace tutti {
namespace {

// Steps between two comparisons of all ranks' waits within an epoch: rare enough to cost little time, and frequent
// enough to need little memory.
constexpr std::int64_t kStepsBetweenComparisons = 1024;

TimeShare share_of(Phase phase) {
  switch (phase) {
    case Phase::data:
      return TimeShare::data;
    case Phase::forward:
    case Phase::backward:
    case Phase::update:
      return TimeShare::compute;
    case Phase::exchange:
      return TimeShare::communication;
    case Phase::waiting:
      return TimeShare::waiting;
    case Phase::evaluation:
      return TimeShare::evaluation;
    case Phase::checkpoint:
      return TimeShare::checkpoint;
    case Phase::starting:
    case Phase::reports:
    case Phase::ending:
      break;
  }
  return TimeShare::other;
}

double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

double TimeShares::sum() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

TimeShares TimeReport::mean() const {
  TimeShares mean;
  for (const TimeShares& rank : ranks) {
    for (std::size_t i = 0; i < kTimeShares; ++i) {
      mean.seconds[i] += rank.seconds[i] / static_cast<double>(ranks.size());
    }
  }
  return mean;
}

bool is_notable(const TimeReport& report) {
  constexpr double kTenth = 0.1;
  const TimeShares mean = report.mean();
  return std::max(mean[TimeShare::waiting], mean[TimeShare::data]) > kTenth * mean.sum();
}

std::string time_line(const TimeReport& report) {
  const TimeShares mean = report.mean();
  std::string line = fmt::format("time {:.1f} s:", report.seconds());
  for (std::size_t i = 0; i < kTimeShares; ++i) {
    const auto share = static_cast<TimeShare>(i);
    line += fmt::format("{} {} {:.0f} %", i == 0 ? "" : ",", name_of(share), 100 * mean[share] / mean.sum());
    if (share != TimeShare::waiting || !report.longest_wait) continue;
    const LongestWait& last = *report.longest_wait;
    line += fmt::format(" ({:.1f} s for rank {} on {}: {})", last.seconds, last.rank, last.host, name_of(last.cause));
  }
  return line;
}

void TimeProfileSum::add(const TimeReport& report) {
  ranks_.resize(report.ranks.size());
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (std::size_t i = 0; i < kTimeShares; ++i) ranks_[rank].seconds[i] += report.ranks[rank].seconds[i];
  }
  if (!report.longest_wait) return;
  const auto [known, is_new] = longest_waits_.try_emplace(report.longest_wait->rank, *report.longest_wait);
  if (!is_new) known->second.seconds += report.longest_wait->seconds;
}

TimeReport TimeProfileSum::report() const {
  TimeReport whole{.ranks = ranks_, .longest_wait = {}};
  for (const auto& [rank, longest_wait] : longest_waits_) {
    if (!whole.longest_wait || longest_wait.seconds > whole.longest_wait->seconds) whole.longest_wait = longest_wait;
  }
  return whole;
}

TimeProfile::TimeProfile(World& world, RankStatus& rank_status)
    : world_(world),
      rank_status_(rank_status),
      hosts_(all_gather_text(world, world.host())),
      waited_for_(hosts_.size()) {
  rank_status_.enter(rank_status_.current().phase);
  rank_status_.add(*this);
}

TimeProfile::~TimeProfile() { rank_status_.remove(*this); }

void TimeProfile::on_end(const PhaseSpan& span) {
  const std::int64_t spent = span.end_ns - span.begin_ns;
  spent_ns_[static_cast<std::size_t>(span.at.phase)] += spent;
  if (span.at.phase == Phase::waiting) waits_.push_back(static_cast<float>(seconds(spent)));
}

void TimeProfile::count_step() {
  if (++steps_ % kStepsBetweenComparisons == 0) compare_waits();
}

void TimeProfile::compare_waits() {
  const auto all = rank_status_.wait_for_ranks([&] { return all_gather_values<float>(world_, waits_); });
  const std::size_t ranks = all.size();
  // With asynchronous work some ranks have recorded more collectives than others.
  const auto counts = all | std::views::transform([](const std::vector<float>& waits) { return waits.size(); });
  const std::size_t collectives = std::ranges::min(counts);
  for (std::size_t i = 0; i < collectives; ++i) {
    std::size_t last = 0;
    double sum = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      sum += static_cast<double>(all[rank][i]);
      if (all[rank][i] < all[last][i]) last = rank;
    }
    const auto transfer = static_cast<double>(all[last][i]);
    transfers_ += transfer;
    if (ranks > 1) {
      waited_for_[last] += (sum - transfer * static_cast<double>(ranks)) / static_cast<double>(ranks - 1);
    }
  }
  waits_.erase(waits_.begin(), waits_.begin() + static_cast<std::ptrdiff_t>(collectives));
}

TimeReport TimeProfile::report() {
  // The wait for a rank that is still late belongs to this report.
  rank_status_.wait_for_ranks([&] { return world_.all_true(true); });
  const auto spent = std::exchange(spent_ns_, {});
  compare_waits();
  TimeShares mine;
  for (std::size_t phase = 0; phase < kPhases; ++phase) {
    mine[share_of(static_cast<Phase>(phase))] += seconds(spent[phase]);
  }
  const double transfers = std::min(std::exchange(transfers_, 0), mine[TimeShare::waiting]);  // min: rounding
  mine[TimeShare::waiting] -= transfers;
  mine[TimeShare::communication] += transfers;

  TimeReport report;
  for (const auto& figures : all_gather_doubles(world_, {mine.seconds.begin(), mine.seconds.end()})) {
    std::ranges::copy(figures, report.ranks.emplace_back().seconds.begin());
  }
  if (world_.size() > 1) report.longest_wait = find_longest_wait(report.ranks);
  std::ranges::fill(waited_for_, 0);
  return report;
}

LongestWait TimeProfile::find_longest_wait(const std::vector<TimeShares>& ranks) const {
  const auto at = static_cast<std::size_t>(std::ranges::max_element(waited_for_) - waited_for_.begin());
  LongestWait longest_wait{.rank = static_cast<int>(at), .host = hosts_[at], .seconds = waited_for_[at]};
  double max_excess = -1;
  for (std::size_t i = 0; i < kTimeShares; ++i) {
    const auto share = static_cast<TimeShare>(i);
    if (share == TimeShare::waiting) continue;
    std::vector<double> others;
    for (std::size_t other = 0; other < ranks.size(); ++other) {
      if (other != at) others.push_back(ranks[other][share]);
    }
    const double excess = ranks[at][share] - quartiles_of(others).median;
    if (excess > max_excess) {
      max_excess = excess;
      longest_wait.cause = share;
    }
  }
  return longest_wait;
}

}  // namespace tutti
