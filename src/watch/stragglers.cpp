#include "stragglers.hpp"

#include "tutti/watch/stall_watch.hpp"

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

}  // namespace tutti
