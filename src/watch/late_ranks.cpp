#include "late_ranks.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

// Phases of any length; what a step computes is soon done.
bool may_take_long(Phase phase) {
  return phase == Phase::starting || phase == Phase::data || phase == Phase::evaluation || phase == Phase::checkpoint ||
         phase == Phase::ending;
}

bool is_at_work(Activity activity) {
  return activity == Activity::computing || activity == Activity::using_disk || activity == Activity::waiting_for_disk;
}

class Judged {
 public:
  explicit Judged(std::span<const RankView> ranks) : ranks_(ranks) {
    for (std::size_t place = 0; place < ranks.size(); ++place) {
      if (ranks[place].state.end != RankEnd::left) present_.push_back(place);
    }
  }

  template <class Property>
  std::vector<std::size_t> with(const Property& property) const {
    std::vector<std::size_t> found;
    for (const std::size_t place : present_) {
      if (property(ranks_[place])) found.push_back(place);
    }
    return found;
  }

  // Of these, the ones that have come to the fewest collectives.
  std::vector<std::size_t> with_fewest_meetings(std::vector<std::size_t> places) const {
    const auto begun = [&](std::size_t place) { return ranks_[place].state.begun; };
    const std::uint64_t fewest = begun(*std::ranges::min_element(places, {}, begun));
    std::erase_if(places, [&](std::size_t place) { return begun(place) != fewest; });
    return places;
  }

  const std::vector<std::size_t>& present() const { return present_; }

  LateRanks find() const;

 private:
  std::span<const RankView> ranks_;
  std::vector<std::size_t> present_;  // those that have not left in order
};

LateRanks Judged::find() const {
  if (present_.empty()) return {};
  const auto is_gone = [](const RankView& rank) {
    return rank.state.end != RankEnd::none || rank.state.activity == Activity::gone;
  };
  const auto is_stopped = [](const RankView& rank) { return rank.state.activity == Activity::stopped; };
  const auto has = [&](Contact contact) { return with([&](const RankView& r) { return r.contact == contact; }); };
  if (auto gone = with(is_gone); !gone.empty()) return {.lateness = Lateness::gone, .places = std::move(gone)};
  if (auto stopped = with(is_stopped); !stopped.empty()) {
    return {.lateness = Lateness::stopped, .places = std::move(stopped)};
  }
  if (auto silent = has(Contact::lost); !silent.empty()) {
    return {.lateness = Lateness::silent, .places = std::move(silent)};
  }
  const auto known = with([](const RankView& rank) { return rank.contact == Contact::good; });
  auto absent = with([](const RankView& rank) { return rank.contact == Contact::good && !waits(rank.state); });
  if (!absent.empty()) {
    return {.lateness = Lateness::absent, .places = with_fewest_meetings(std::move(absent))};
  }
  if (auto never = has(Contact::never); !never.empty()) {
    return {.lateness = Lateness::unheard, .places = std::move(never)};
  }
  auto behind = with_fewest_meetings(known);
  const Lateness lateness = behind.size() < known.size() ? Lateness::behind : Lateness::unknown;
  return {.lateness = lateness, .places = std::move(behind)};
}

}  // namespace

std::string_view name_of(Activity activity) {
  switch (activity) {
    case Activity::unknown:
      return "not looked at";
    case Activity::idle:
      return "asleep";
    case Activity::computing:
      return "computing";
    case Activity::using_disk:
      return "using the disk";
    case Activity::waiting_for_disk:
      return "waiting for a disk";
    case Activity::waiting_for_core:
      return "waiting for a core";
    case Activity::stopped:
      return "stopped";
    case Activity::traced:
      return "in a debugger";
    case Activity::gone:
      return "gone";
  }
  return "unknown";
}

// In the phases of a step a rank has sums on their way while it computes.
bool waits(const RankState& state) {
  switch (state.phase) {
    case Phase::data:
    case Phase::forward:
    case Phase::backward:
    case Phase::exchange:
    case Phase::update:
      return false;
    default:
      return state.begun != state.done;
  }
}

LateRanks late_ranks(std::span<const RankView> ranks) {
  const Judged judged(ranks);
  LateRanks late = judged.find();
  for (const std::size_t place : judged.present()) {
    if (!std::ranges::binary_search(late.places, place) && waits(ranks[place].state)) ++late.waiting;
  }
  late.is_slow = late.lateness >= Lateness::absent && std::ranges::any_of(late.places, [&](std::size_t place) {
                   const RankState& state = ranks[place].state;
                   // A host that is not heard watches itself, and alone knows which of its ranks are slow.
                   if (late.lateness == Lateness::unheard) return true;
                   if (state.activity == Activity::waiting_for_core) return true;
                   return late.lateness == Lateness::absent && may_take_long(state.phase) && is_at_work(state.activity);
                 });
  return late;
}

}  // namespace tutti
