#include "watch_page.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>

namespace tutti {
namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free &&
              std::atomic<RankEnd>::is_always_lock_free);

constexpr double kBeatSeconds = 1;  // without one for so long, a watch thread does not act

}  // namespace

WatchPage::WatchPage(World& world)
    : memory_(world.node_memory(sizeof(PageHead) + static_cast<std::size_t>(world.local_size()) * sizeof(RankSlot))),
      own_(static_cast<std::size_t>(world.local_rank())) {
  auto* const bytes = static_cast<std::byte*>(memory_.data());
  head_ = reinterpret_cast<PageHead*>(bytes);
  slots_ = {reinterpret_cast<RankSlot*>(bytes + sizeof(PageHead)), static_cast<std::size_t>(world.local_size())};
  if (own_ == 0) std::construct_at(head_)->first_rank = world.rank();
  RankSlot* const slot = std::construct_at(&own());
  slot->rank = world.rank();
  slot->process = ::getpid();
  if (const auto self = read_process(slot->process)) slot->started = self->started;
  slot->beat_ns = now_ns();
  world.node_barrier();
}

PageReader::PageReader(WatchPage& page, std::int64_t now_ns)
    : page_(page), states_(page.slots().size()), seen_(page.slots().size()) {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const RankSlot& slot = page.slots()[i];
    states_[i].rank = slot.rank;
    seen_[i].changed_ns = now_ns;
    // Ranks in containers of their own do not see each other's processes.
    const auto process = read_process(slot.process);
    seen_[i].visible = process && process->started == slot.started;
  }
}

bool PageReader::acts(std::int64_t now_ns) const {
  for (std::size_t i = 0; i < seen_.size(); ++i) {
    const RankSlot& slot = page_.slots()[i];
    if (&slot == &page_.own()) break;
    const bool beats = static_cast<double>(now_ns - slot.beat_ns) * 1e-9 < kBeatSeconds;
    if (slot.end == RankEnd::none && beats && (!seen_[i].visible || exists(slot.process))) return false;
  }
  return page_.own().end == RankEnd::none;
}

const std::vector<RankState>& PageReader::read(std::int64_t now_ns) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const RankSlot& slot = page_.slots()[i];
    RankState& state = states_[i];
    const std::uint64_t before = state.moves();
    state.signs = slot.place.signs.load(std::memory_order_acquire);
    state.phase = slot.place.phase;
    state.step = slot.place.step;
    // First what is done, so that a rank never seems to have done more than it has begun.
    state.done = slot.collectives.done.load(std::memory_order_acquire);
    state.begun = slot.collectives.begun;
    state.end = slot.end;
    if (state.moves() != before) seen_[i].changed_ns = now_ns;
    state.quiet_seconds = static_cast<double>(now_ns - seen_[i].changed_ns) * 1e-9;
    if (seen_[i].visible && state.end == RankEnd::none) {
      state.activity = seen_[i].meter.measure(slot.process, now_ns, state.quiet_seconds >= quiet_seconds_,
                                              std::max(ActivityMeter::kShortestSeconds, quiet_seconds_ / 2));
    }
  }
  return states_;
}

const RankState* PageReader::find_gone(std::int64_t now_ns) {
  for (std::size_t i = 0; i < states_.size(); ++i) {
    const RankSlot& slot = page_.slots()[i];
    if (!seen_[i].visible || slot.end != RankEnd::none || exists(slot.process)) continue;
    // It may have come to its end in between.
    if (slot.end != RankEnd::none) continue;
    read(now_ns);
    states_[i].activity = Activity::gone;
    return &states_[i];
  }
  return nullptr;
}

}  // namespace tutti
