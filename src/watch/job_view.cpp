#include "job_view.hpp"

#include <algorithm>
#include <cmath>

namespace tutti {

bool Datagram::is_valid(std::size_t received_bytes, std::uint64_t nonce_of_job) const {
  if (received_bytes < offsetof(Datagram, states) || magic != Datagram{}.magic || nonce != nonce_of_job) return false;
  if (kind > DatagramKind::ending || count > kMaxStates || received_bytes != bytes()) return false;
  return std::ranges::all_of(sent_states(), [](const RankState& state) {
    return state.phase <= Phase::ending && state.end <= RankEnd::signaled && state.activity <= Activity::gone &&
           std::isfinite(state.quiet_seconds);
  });
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
  if (datagram.count > 0) return record(host, datagram.sent_states(), now_ns);
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
