#include "stragglers.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t kMaxNames = 8;
constexpr std::size_t kMaxRows = 20;

std::string phase_text(const RankState& state) {
  switch (state.phase) {
    case Phase::starting:
    case Phase::ending:
      return std::string(name_of(state.phase));
    case Phase::evaluation:
    case Phase::checkpoint:
    case Phase::reports:
      return fmt::format("in {} after step {}", name_of(state.phase), state.step);
    case Phase::data:
    case Phase::forward:
    case Phase::backward:
    case Phase::exchange:
    case Phase::waiting:
    case Phase::update:
      break;
  }
  return fmt::format("in {} of step {}", name_of(state.phase), state.step);
}

std::string names_text(const Stragglers& stragglers, std::span<const RankView> ranks) {
  std::vector<std::string> names;
  for (const std::size_t rank : stragglers.ranks) {
    if (names.size() == kMaxNames) break;
    names.push_back(fmt::format("rank {} on {}", rank, ranks[rank].host));
  }
  const std::size_t more = stragglers.ranks.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

// Describes the first straggler.
std::string state_text(const Stragglers& stragglers, const RankView& rank, bool stuck) {
  const bool one = stragglers.ranks.size() == 1;
  const bool slow = stragglers.is_slow;
  const std::string phase = phase_text(rank.state);
  const char* const is = one ? "is" : "are";
  switch (stragglers.lateness) {
    case Lateness::gone:
      return fmt::format("{} gone: {} process ended {}{}{}", is, one ? "its" : "the first one's",
                         phase.starts_with("in ") ? "" : "while ", phase,
                         rank.state.end == RankEnd::none
                             ? " without a message, killed by a signal or the OOM killer (see dmesg)"
                             : "");
    case Lateness::lost_contact:
      return fmt::format("{} unreachable: no message from {} for {:.1f} s, last {}", is, rank.host, rank.silent_seconds,
                         phase);
    case Lateness::never_contacted:
      return fmt::format("{} late or unreachable: no message from {} ever arrived", is, rank.host);
    case Lateness::same_collective:
      if (slow) break;
      return "wait for each other in the same collective: a message was lost, or the network is down";
    case Lateness::stopped:
    case Lateness::not_waiting:
    case Lateness::fewer_collectives:
      break;
  }
  return fmt::format(
      "{} {}: {}{} for {:.1f} s, {}{}", is,
      stuck  ? "stuck"
      : slow ? "slow, not stuck"
             : "late",
      one ? "" : "the first ", phase, rank.state.quiet_seconds, name_of(rank.state.activity),
      stragglers.lateness == Lateness::fewer_collectives ? ", with fewer collectives started than the others" : "");
}

// Whether their rows differ only in rank and time.
bool share_row(const RankView& first, const RankView& second) {
  return first.host == second.host && first.contact == second.contact && first.state.phase == second.state.phase &&
         first.state.step == second.state.step && first.state.end == second.state.end &&
         first.state.activity == second.state.activity && first.state.begun == second.state.begun;
}

std::string_view state_word(const RankView& rank) {
  if (rank.state.end == RankEnd::finished) return "finished";
  if (rank.state.end == RankEnd::failed) return "failed";
  if (rank.state.end == RankEnd::signaled) return "ended by a signal";
  if (rank.contact == Contact::lost) return "unreachable";
  if (rank.contact == Contact::never) return "never contacted";
  return waits(rank.state) && rank.state.activity < Activity::stopped ? "waits" : name_of(rank.state.activity);
}

struct Row {
  std::size_t first = 0;
  std::size_t last = 0;
  double quiet_seconds = 0;  // the longest
  bool late = false;
};

std::vector<Row> rows_of(const Stragglers& stragglers, std::span<const RankView> ranks) {
  std::vector<Row> rows;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const bool late = std::ranges::binary_search(stragglers.ranks, rank);
    if (rows.empty() || rows.back().late != late || !share_row(ranks[rows.back().first], ranks[rank])) {
      rows.push_back({.first = rank, .late = late});
    }
    rows.back().last = rank;
    rows.back().quiet_seconds = std::max(rows.back().quiet_seconds, ranks[rank].state.quiet_seconds);
  }
  return rows;
}

}  // namespace

std::string late_text(const Stragglers& stragglers, std::span<const RankView> ranks, bool stuck) {
  const RankView& first = ranks[stragglers.ranks.front()];
  std::string text = fmt::format("{} {}", names_text(stragglers, ranks), state_text(stragglers, first, stuck));
  if (stragglers.waiting > 0) {
    text += fmt::format("; {} {} for {}", stragglers.waiting, stragglers.waiting == 1 ? "rank waits" : "ranks wait",
                        stragglers.ranks.size() == 1 ? "it" : "them");
  }
  return text;
}

std::string recovery_text(const Stragglers& stragglers, std::span<const RankView> ranks, double stalled_seconds) {
  return fmt::format("{} {} slow, not stuck: the job made no progress for {:.1f} s and continues",
                     names_text(stragglers, ranks), stragglers.ranks.size() == 1 ? "was" : "were", stalled_seconds);
}

std::string table_text(const Stragglers& stragglers, std::span<const RankView> ranks) {
  const std::vector<Row> rows = rows_of(stragglers, ranks);
  std::size_t width = 4;
  for (const RankView& rank : ranks) width = std::max(width, rank.host.size());
  // The column "collectives" is CollectiveCounter::begun.
  std::string text = fmt::format("  {:>11}  {:<{}}  {:>8}  {:<10}  {:>9}  {:>11}  {}", "ranks", "host", width, "step",
                                 "phase", "quiet (s)", "collectives", "state");
  // Late ranks take precedence; others fill the remaining rows.
  std::size_t late_room = kMaxRows;
  std::size_t other_room =
      kMaxRows - std::min(kMaxRows, static_cast<std::size_t>(std::ranges::count(rows, true, &Row::late)));
  std::size_t left_out = 0;
  for (const Row& row : rows) {
    std::size_t& room = row.late ? late_room : other_room;
    if (room == 0) {
      left_out += row.last - row.first + 1;
      continue;
    }
    --room;
    const RankView& rank = ranks[row.first];
    const std::string label =
        row.first == row.last ? fmt::format("{}", row.first) : fmt::format("{}-{}", row.first, row.last);
    text += fmt::format("\n  {:>11}  {:<{}}  {:>8}  {:<10}  {:>9.1f}  {:>11}  {}{}", label, rank.host, width,
                        rank.state.step, name_of(rank.state.phase), row.quiet_seconds, rank.state.begun,
                        state_word(rank), row.late ? "  <- late" : "");
  }
  if (left_out > 0) text += fmt::format("\n  and {} more ranks", left_out);
  return text;
}

}  // namespace tutti
