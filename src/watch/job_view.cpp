#include "job_view.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tutti {
namespace {

struct Head {
  std::uint32_t magic = 0x54545701;
  DatagramKind kind = DatagramKind::report;
  std::uint64_t nonce = 0;
  std::int32_t sender = 0;
  std::uint32_t states = 0;
};
static_assert(sizeof(Head) == 24 && sizeof(Head) + kMaxStates * sizeof(RankState) <= kMaxDatagramBytes);

bool is_in_range(const RankState& state) {
  return state.phase <= Phase::ending && state.end <= RankEnd::signaled && state.activity <= Activity::gone &&
         std::isfinite(state.quiet_seconds);
}

}  // namespace

std::vector<std::vector<std::byte>> pack(const Datagram& datagram, std::uint64_t nonce) {
  std::vector<std::vector<std::byte>> packed;
  std::size_t first = 0;
  do {
    const std::size_t states = std::min(datagram.states.size() - first, kMaxStates);
    const Head head{
        .kind = datagram.kind, .nonce = nonce, .sender = datagram.sender, .states = static_cast<std::uint32_t>(states)};
    auto& bytes = packed.emplace_back(sizeof head + states * sizeof(RankState));
    std::memcpy(bytes.data(), &head, sizeof head);
    if (states > 0) std::memcpy(&bytes[sizeof head], &datagram.states[first], states * sizeof(RankState));
    first += states;
  } while (first < datagram.states.size());
  return packed;
}

std::optional<Datagram> unpack(std::span<const std::byte> bytes, std::uint64_t nonce) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  if (head.magic != Head{}.magic || head.nonce != nonce || head.kind > DatagramKind::ending) return std::nullopt;
  if (head.states > kMaxStates || bytes.size() != sizeof head + head.states * sizeof(RankState)) return std::nullopt;
  Datagram datagram{.kind = head.kind, .sender = head.sender, .states = std::vector<RankState>(head.states)};
  if (head.states > 0) std::memcpy(datagram.states.data(), &bytes[sizeof head], head.states * sizeof(RankState));
  if (!std::ranges::all_of(datagram.states, is_in_range)) return std::nullopt;
  return datagram;
}

JobView::JobView(const Roster& roster, int own_rank, std::int64_t now_ns)
    : roster_(roster), own_host_(roster.host_of(own_rank)), heard_(roster.hosts.size(), {.last_ns = now_ns}) {
  for (std::size_t rank = 0; rank < roster.host_of_rank.size(); ++rank) {
    RankView& view = views_.emplace_back();
    view.state.rank = static_cast<std::int32_t>(rank);
    view.host = roster.hosts[roster.host_of_rank[rank]].name;
  }
}

void JobView::record(const Datagram& datagram, std::int64_t now_ns) {
  const std::size_t host = roster_.host_of(datagram.sender);
  if (host == own_host_) return;
  if (!datagram.states.empty()) return record(host, datagram.states, now_ns);
  heard_[host].last_ns = now_ns;
  heard_[host].ever = true;
}

void JobView::record(std::size_t host, std::span<const RankState> states, std::int64_t now_ns) {
  heard_[host] = {.last_ns = now_ns, .ever = true, .reported = true};
  for (const RankState& state : states) {
    const auto rank = static_cast<std::size_t>(state.rank);
    if (rank < views_.size() && roster_.host_of_rank[rank] == host) views_[rank].state = state;
  }
}

double JobView::silent_seconds(std::size_t host, std::int64_t now_ns) const {
  return static_cast<double>(now_ns - heard_[host].last_ns) * 1e-9;
}

std::vector<std::string> JobView::hosts_never_contacted() const {
  std::vector<std::string> names;
  for (std::size_t host = 0; host < heard_.size(); ++host) {
    if (!heard_[host].ever && host != own_host_) names.push_back(roster_.hosts[host].name);
  }
  return names;
}

bool JobView::has_failed() const {
  return std::ranges::any_of(views_, [](const RankView& rank) { return rank.state.end == RankEnd::failed; });
}

std::span<const RankView> JobView::refresh(std::int64_t now_ns, double lost_seconds) {
  for (std::size_t rank = 0; rank < views_.size(); ++rank) {
    const std::size_t host = roster_.host_of_rank[rank];
    RankView& view = views_[rank];
    view.silent_seconds = host == own_host_ ? 0 : silent_seconds(host, now_ns);
    const bool lost = heard_[host].ever && view.silent_seconds > lost_seconds;
    view.contact = lost ? Contact::lost : heard_[host].reported ? Contact::good : Contact::never;
  }
  return views_;
}

}  // namespace tutti
