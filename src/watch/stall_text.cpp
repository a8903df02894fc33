#include "stall_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t kMostNames = 8;
constexpr std::size_t kMostRows = 20;

std::string place_text(const RankState& state) {
  switch (state.phase) {
    case Phase::starting:
    case Phase::ending:
      return name_of(state.phase);
    case Phase::evaluation:
    case Phase::checkpoint:
    case Phase::reports:
      return fmt::format("in {} after step {}", name_of(state.phase), state.step);
    default:
      return fmt::format("in {} of step {}", name_of(state.phase), state.step);
  }
}

std::string names_text(const LateRanks& late, std::span<const RankView> ranks) {
  std::vector<std::string> names;
  for (const std::size_t place : late.places) {
    if (names.size() == kMostNames) break;
    names.push_back(fmt::format("rank {} on {}", ranks[place].state.rank, ranks[place].host));
  }
  const std::size_t more = late.places.size() - names.size();
  return fmt::format("{}{}", fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

// Of the first of them.
std::string state_text(const LateRanks& late, const RankView& rank, bool stuck) {
  const bool one = late.places.size() == 1;
  const std::string place = place_text(rank.state);
  const char* const is = one ? "is" : "are";
  switch (late.lateness) {
    case Lateness::gone:
      return fmt::format("{} gone: {} process ended {}{}", is, one ? "its" : "the first one's", place,
                         rank.state.end == RankEnd::none
                             ? " without a word, killed by a signal or, for want of memory, by the system (dmesg)"
                             : "");
    case Lateness::silent:
      return fmt::format("{} out of reach: nothing was heard of {} for {:.1f} s, last {}", is, rank.host,
                         rank.silent_seconds, place);
    case Lateness::unheard:
      return fmt::format("{} late or out of reach: nothing was ever heard of {}", is, rank.host);
    case Lateness::unknown:
      if (late.is_slow) break;
      return "wait for each other, and none is behind: a message was lost, or the network stands still";
    case Lateness::stopped:
    case Lateness::absent:
    case Lateness::behind:
      break;
  }
  return fmt::format("{} {}: {}{} for {:.1f} s, {}{}", is,
                     stuck          ? "stuck"
                     : late.is_slow ? "slow, not stuck"
                                    : "late",
                     one ? "" : "the first ", place, rank.state.quiet_seconds, name_of(rank.state.activity),
                     late.lateness == Lateness::behind ? ", with fewer sums begun than the others" : "");
}

// What makes a row, but for the ranks and the time.
bool are_alike(const RankView& one, const RankView& other) {
  return one.host == other.host && one.contact == other.contact && one.state.phase == other.state.phase &&
         one.state.step == other.state.step && one.state.end == other.state.end &&
         one.state.activity == other.state.activity && one.state.begun == other.state.begun;
}

std::string_view state_word(const RankView& rank) {
  switch (rank.state.end) {
    case RankEnd::left:
      return "left";
    case RankEnd::failed:
      return "failed";
    case RankEnd::signaled:
      return "ended by a signal";
    case RankEnd::none:
      break;
  }
  if (rank.contact == Contact::lost) return "out of reach";
  if (rank.contact == Contact::never) return "never heard";
  return waits(rank.state) && rank.state.activity < Activity::stopped ? "waits" : name_of(rank.state.activity);
}

struct Row {
  std::size_t first = 0;
  std::size_t last = 0;
  double quiet_seconds = 0;  // the longest
  bool late = false;
};

std::vector<Row> rows_of(const LateRanks& late, std::span<const RankView> ranks) {
  std::vector<Row> rows;
  for (std::size_t place = 0; place < ranks.size(); ++place) {
    const bool is_late = std::ranges::binary_search(late.places, place);
    if (rows.empty() || rows.back().late != is_late || !are_alike(ranks[rows.back().first], ranks[place])) {
      rows.push_back({.first = place, .last = place, .quiet_seconds = 0, .late = is_late});
    }
    rows.back().last = place;
    rows.back().quiet_seconds = std::max(rows.back().quiet_seconds, ranks[place].state.quiet_seconds);
  }
  return rows;
}

}  // namespace

std::string late_text(const LateRanks& late, std::span<const RankView> ranks, bool stuck) {
  const RankView& first = ranks[late.places.front()];
  std::string text = fmt::format("{} {}", names_text(late, ranks), state_text(late, first, stuck));
  if (late.waiting > 0) {
    text += fmt::format("; {} {} for {}", late.waiting, late.waiting == 1 ? "rank waits" : "ranks wait",
                        late.places.size() == 1 ? "it" : "them");
  }
  return text;
}

std::string arrival_text(const LateRanks& late, std::span<const RankView> ranks, double still_seconds) {
  return fmt::format("{} {} slow, not stuck: the job stood still for {:.1f} s, and goes on", names_text(late, ranks),
                     late.places.size() == 1 ? "was" : "were", still_seconds);
}

std::string table_text(const LateRanks& late, std::span<const RankView> ranks) {
  const std::vector<Row> rows = rows_of(late, ranks);
  std::size_t width = 4;
  for (const RankView& rank : ranks) width = std::max(width, rank.host.size());
  std::string text = fmt::format("  {:>11}  {:<{}}  {:>8}  {:<10}  {:>7}  {:>8}  {}\n", "ranks", "host", width, "step",
                                 "phase", "for s", "sums", "state");
  // All that are late first of all, then as many others as there is room for.
  const auto late_rows = static_cast<std::size_t>(std::ranges::count(rows, true, &Row::late));
  std::size_t others = kMostRows - std::min(kMostRows, late_rows);
  std::size_t late_left = kMostRows;
  std::size_t left_out = 0;
  for (const Row& row : rows) {
    std::size_t& room = row.late ? late_left : others;
    if (room == 0) {
      left_out += row.last - row.first + 1;
      continue;
    }
    --room;
    const RankView& rank = ranks[row.first];
    const std::string who = row.first == row.last ? fmt::format("{}", rank.state.rank)
                                                  : fmt::format("{}-{}", rank.state.rank, ranks[row.last].state.rank);
    text += fmt::format("  {:>11}  {:<{}}  {:>8}  {:<10}  {:>7.1f}  {:>8}  {}{}\n", who, rank.host, width,
                        rank.state.step, name_of(rank.state.phase), row.quiet_seconds, rank.state.begun,
                        state_word(rank), row.late ? "  <- late" : "");
  }
  if (left_out > 0) text += fmt::format("  and {} more ranks\n", left_out);
  text.pop_back();
  return text;
}

}  // namespace tutti
