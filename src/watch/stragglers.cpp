#include "stragglers.hpp"

#include "tutti/watch/stall_watch.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Phases of unbounded length; the phases of a step are short.
bool may_take_long(Phase phase) {
  return phase == Phase::starting || phase == Phase::data || phase == Phase::evaluation || phase == Phase::checkpoint ||
         phase == Phase::ending;
}

bool is_at_work(Activity activity) {
  return activity == Activity::computing || activity == Activity::using_disk || activity == Activity::waiting_for_disk;
}

bool is_present(const RankView& rank) { return rank.state.end != RankEnd::finished; }

template <class Property>
std::vector<std::size_t> ranks_with(std::span<const RankView> ranks, const Property& property) {
  std::vector<std::size_t> found;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (is_present(ranks[rank]) && property(ranks[rank])) found.push_back(rank);
  }
  return found;
}

// Of `some`, the ranks that have begun the fewest collectives.
std::vector<std::size_t> with_fewest_begun(std::span<const RankView> ranks, std::vector<std::size_t> some) {
  const auto begun = [&](std::size_t rank) { return ranks[rank].state.begun; };
  const std::uint64_t fewest = begun(*std::ranges::min_element(some, {}, begun));
  std::erase_if(some, [&](std::size_t rank) { return begun(rank) != fewest; });
  return some;
}

// Finds the ranks, and why they are late; the caller fills in the rest.
Stragglers find(std::span<const RankView> ranks) {
  const auto with = [&](const auto& property) { return ranks_with(ranks, property); };
  const auto contact_is = [](Contact contact) { return [=](const RankView& rank) { return rank.contact == contact; }; };
  auto found = with(
      [](const RankView& rank) { return rank.state.end != RankEnd::none || rank.state.activity == Activity::gone; });
  if (!found.empty()) return {.lateness = Lateness::gone, .ranks = std::move(found)};
  found = with([](const RankView& rank) { return rank.state.activity == Activity::stopped; });
  if (!found.empty()) return {.lateness = Lateness::stopped, .ranks = std::move(found)};
  found = with(contact_is(Contact::lost));
  if (!found.empty()) return {.lateness = Lateness::lost_contact, .ranks = std::move(found)};
  found = with([](const RankView& rank) { return rank.contact == Contact::good && !waits(rank.state); });
  if (!found.empty()) return {.lateness = Lateness::not_waiting, .ranks = with_fewest_begun(ranks, std::move(found))};
  found = with(contact_is(Contact::never));
  if (!found.empty()) return {.lateness = Lateness::never_contacted, .ranks = std::move(found)};
  const auto all = with([](const RankView&) { return true; });
  if (all.empty()) return {};
  found = with_fewest_begun(ranks, all);
  const Lateness lateness = found.size() < all.size() ? Lateness::fewer_collectives : Lateness::same_collective;
  return {.lateness = lateness, .ranks = std::move(found)};
}

bool is_slow(Lateness lateness, const RankState& state) {
  // A never contacted host watches itself; only it knows which of its ranks are slow.
  if (lateness == Lateness::never_contacted || state.activity == Activity::waiting_for_core) return true;
  return lateness == Lateness::not_waiting && may_take_long(state.phase) && is_at_work(state.activity);
}

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

// In the phases of a step except `waiting`, collectives are in progress while the rank computes.
bool waits(const RankState& state) {
  const bool in_step = state.phase >= Phase::data && state.phase <= Phase::update;
  return (!in_step || state.phase == Phase::waiting) && state.begun != state.done;
}

bool sees_minority(std::span<const RankView> ranks) {
  const auto has = [](Contact contact) { return [contact](const RankView& rank) { return rank.contact == contact; }; };
  if (std::ranges::none_of(ranks, has(Contact::lost))) return false;
  const auto seen = std::ranges::count_if(ranks, has(Contact::good));
  const auto all = std::ssize(ranks);
  return 2 * seen < all || (2 * seen == all && ranks.front().contact != Contact::good);
}

Stragglers find_stragglers(std::span<const RankView> ranks) {
  Stragglers stragglers = find(ranks);
  for (const std::size_t rank : ranks_with(ranks, [](const RankView& each) { return waits(each.state); })) {
    if (!std::ranges::binary_search(stragglers.ranks, rank)) ++stragglers.waiting;
  }
  stragglers.is_slow =
      stragglers.lateness >= Lateness::not_waiting && std::ranges::any_of(stragglers.ranks, [&](std::size_t rank) {
        return is_slow(stragglers.lateness, ranks[rank].state);
      });
  return stragglers;
}

bool StallCheck::has_progress(std::span<const RankView> ranks) {
  progress_counts_.resize(ranks.size());
  bool has_progressed = false;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankState& state = ranks[rank].state;
    const std::uint64_t now = state.progress_count() + static_cast<std::uint64_t>(state.end);
    has_progressed |= std::exchange(progress_counts_[rank], now) != now;
  }
  return has_progressed;
}

StallFinding StallCheck::update(const Timing& timing, std::span<const RankView> ranks) {
  const bool has_progressed = has_progress(ranks);
  const double stalled = static_cast<double>(timing.now_ns - last_progress_ns_) * 1e-9;
  if (has_progressed || !timing.on_time) {
    last_progress_ns_ = timing.now_ns;
    if (!has_progressed || !std::exchange(warned_, false)) return {};
    return {.kind = StallFinding::Kind::recovered,
            .stragglers = std::exchange(warned_stragglers_, {}),
            .stalled_seconds = stalled};
  }
  if (stalled < timing.timeout_seconds / 2) return {};
  Stragglers stragglers = find_stragglers(ranks);
  if (stragglers.ranks.empty()) return {};
  const auto is_in_debugger = [](const RankView& rank) { return rank.state.activity == Activity::in_debugger; };
  if (std::ranges::any_of(ranks, is_in_debugger)) {
    last_progress_ns_ = timing.now_ns;
    return {};
  }
  const double timeout = timing.timeout_seconds * (stragglers.is_slow ? StallWatch::kSlowFactor : 1);
  if (stalled >= timeout) {
    return {.kind = StallFinding::Kind::stuck, .stragglers = std::move(stragglers), .stalled_seconds = stalled};
  }
  if (warned_ || (stragglers.is_slow && stalled < timing.timeout_seconds)) return {};
  warned_ = true;
  warned_stragglers_ = stragglers;
  return {.kind = StallFinding::Kind::late, .stragglers = std::move(stragglers), .stalled_seconds = stalled};
}

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
