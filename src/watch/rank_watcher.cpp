#include "rank_watcher.hpp"

#include "tutti/comm/nccl_library.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>

namespace tutti {
namespace {

// The first hosts check the job; reports are sent to this many ranks of each.
constexpr std::size_t kCheckingHosts = 2;
constexpr std::size_t kCheckersPerHost = 2;

// Limits the datagrams that reach one checker to some 300 per second.
constexpr std::int64_t kReportNs = 200'000'000;
constexpr std::int64_t kReportNsPerDatagram = 3'000'000;

constexpr double kLostSeconds = 2;          // without a report
constexpr double kClaimSeconds = 10;        // by then a rank that claimed the end has ended the job or died
constexpr double kFirstHeardSeconds = 2.5;  // by then each host should have received something from all others

// `first_rank` is the first rank of this rank's host. Collective.
Roster make_roster(World& world, int first_rank) {
  const auto first_ranks = all_gather_values<int>(world, std::span(&first_rank, 1));
  const auto names = all_gather_text(world, world.host());
  Roster roster;
  for (std::size_t rank = 0; rank < names.size(); ++rank) {
    const auto first = static_cast<std::size_t>(first_ranks[rank].front());
    if (first == rank) roster.hosts.push_back({.name = names[rank], .ranks = {}});
    roster.host_of_rank.push_back(first == rank ? roster.hosts.size() - 1 : roster.host_of_rank[first]);
    roster.hosts[roster.host_of_rank.back()].ranks.push_back(static_cast<int>(rank));
  }
  return roster;
}

JobEnd make_job_end(const Stragglers& stragglers, std::span<const RankView> ranks) {
  const RankView& first = ranks[stragglers.ranks.front()];
  return {.report = {.rank = first.state.rank,
                     .host = std::string(first.host),
                     .at = {.step = first.state.step, .phase = first.state.phase},
                     .reason = late_text(stragglers, ranks, true)},
          .table = table_text(stragglers, ranks),
          .launcher_ends_job = stragglers.lateness == Lateness::gone,
          .is_of_minority = sees_minority(ranks)};
}

}  // namespace

RankWatcher::RankWatcher(World& world, const std::string& interface, const Log& log)
    : log_(log),
      shared_(world),
      roster_(make_roster(world, shared_.head().first_rank)),
      begun_ns_(now_ns()),
      view_(roster_, world.rank(), begun_ns_),
      check_(begun_ns_) {
  shared_.begin(begun_ns_);
  if (roster_.hosts.size() > 1) heartbeats_.emplace(world, roster_, interface);
  world.set_collective_counter(own().collectives);
}

std::int64_t RankWatcher::report_interval_ns() const {
  const std::size_t datagrams = roster_.hosts.size() + roster_.host_of_rank.size() / kMaxStates;
  return std::max(kReportNs, kReportNsPerDatagram * static_cast<std::int64_t>(datagrams));
}

std::optional<JobEnd> RankWatcher::tick(const StallCheck::Timing& timing) {
  const std::int64_t now = timing.now_ns;
  own().tick_ns = now;
  receive(now);
  const bool is_host_leader = shared_.is_host_leader(now);
  shared_.set_quiet_threshold(timing.timeout_seconds / 4);
  view_.record_own(shared_.read(now), now);
  if (is_host_leader && now - states_sent_ns_ >= report_interval_ns()) report(now);
  const double interval = static_cast<double>(report_interval_ns()) * 1e-9;
  const double lost_seconds = std::max(5 * interval, std::min(kLostSeconds, timing.timeout_seconds / 2));
  const std::span<const RankView> ranks = view_.refresh(now, lost_seconds);
  // Every rank keeps the time: it may become the host's leader later.
  const StallFinding finding = check_.update(timing, ranks);
  if (!is_host_leader) return std::nullopt;
  if (auto gone = find_gone(now)) return gone;
  if (view_.own_host() == 0) warn_of_never_contacted(now);
  const bool checks = checks_job(now, lost_seconds);
  checks_for_lost_hosts_ = checks && view_.own_host() >= kCheckingHosts;
  return checks ? act_on(finding, ranks) : std::nullopt;
}

bool RankWatcher::checks_job(std::int64_t now_ns, double lost_seconds) const {
  for (std::size_t host = 0; host < std::min(kCheckingHosts, view_.own_host()); ++host) {
    if (view_.silent_seconds(host, now_ns) < lost_seconds) return false;
  }
  return true;
}

std::optional<JobEnd> RankWatcher::act_on(const StallFinding& finding, std::span<const RankView> ranks) {
  const Stragglers& stragglers = finding.stragglers;
  if (finding.kind == StallFinding::Kind::late) log_.warn(late_text(stragglers, ranks, false));
  if (finding.kind == StallFinding::Kind::recovered) {
    log_.warn(recovery_text(stragglers, ranks, finding.stalled_seconds));
  }
  if (finding.kind != StallFinding::Kind::stuck) return std::nullopt;
  JobEnd end = make_job_end(stragglers, ranks);
  const RankState& late = ranks[stragglers.ranks.front()].state;
  const bool is_in_collective = stragglers.lateness >= Lateness::not_waiting && late.begun != late.done;
  if (is_in_collective && own().collectives.by_nccl) end.report.reason += fmt::format("; {}", kNcclNetworkRemedy);
  return end;
}

std::optional<JobEnd> RankWatcher::find_gone(std::int64_t now_ns) {
  const RankState* const gone = shared_.find_gone(now_ns);
  if (gone == nullptr) return std::nullopt;
  // After a rank's failure other ranks end, too; the failure itself has been reported.
  receive(now_ns);
  view_.record_own(shared_.states(), now_ns);
  if (view_.has_failed()) return std::nullopt;
  const std::span<const RankView> ranks = view_.refresh(now_ns, kLostSeconds);
  Stragglers stragglers{.lateness = Lateness::gone, .ranks = {static_cast<std::size_t>(gone->rank)}};
  stragglers.waiting = static_cast<int>(std::ranges::count_if(ranks, [&](const RankView& rank) {
    return rank.state.rank != gone->rank && rank.state.end == RankEnd::none && waits(rank.state);
  }));
  return make_job_end(stragglers, ranks);
}

void RankWatcher::report(std::int64_t now_ns) {
  states_sent_ns_ = now_ns;
  if (!heartbeats_) return;
  const std::vector<RankState>& states = shared_.read(now_ns);
  // Hosts that are left without the usual ones show each other who is left.
  const std::size_t hosts = checks_for_lost_hosts_ ? roster_.hosts.size() : kCheckingHosts;
  for (std::size_t host = 0; host < std::min(hosts, roster_.hosts.size()); ++host) {
    if (host == view_.own_host()) continue;
    const auto& ranks = roster_.hosts[host].ranks;
    for (std::size_t i = 0; i < std::min(kCheckersPerHost, ranks.size()); ++i) {
      heartbeats_->send(DatagramKind::report, states, ranks[i]);
    }
  }
}

void RankWatcher::receive(std::int64_t now_ns) {
  if (!heartbeats_) return;
  for (const Datagram& datagram : heartbeats_->receive()) {
    if (datagram.kind == DatagramKind::ending) {
      end_host(now_ns + static_cast<std::int64_t>(kEndSeconds * 1e9));
      continue;
    }
    view_.record(datagram, now_ns);
    if (datagram.kind != DatagramKind::report) continue;
    heartbeats_->send(DatagramKind::heard, {}, datagram.sender);
  }
}

void RankWatcher::warn_of_never_contacted(std::int64_t now_ns) {
  const double seconds = static_cast<double>(now_ns - begun_ns_) * 1e-9;
  if (!heartbeats_ || warned_of_never_contacted_ || seconds < kFirstHeardSeconds) return;
  warned_of_never_contacted_ = true;
  const auto names = view_.hosts_never_contacted();
  if (names.empty()) return;
  log_.warn(
      fmt::format("the stall watch receives nothing from {} over {} and watches each host separately: choose "
                  "another interface with --watch-interface, or allow UDP between the hosts",
                  fmt::join(names, ", "), heartbeats_->description()));
}

bool RankWatcher::claim_end(std::int64_t now_ns) {
  std::int64_t claimed_ns = head().end_claimed_ns;
  if (claimed_ns != 0 && static_cast<double>(now_ns - claimed_ns) * 1e-9 < kClaimSeconds) return false;
  return head().end_claimed_ns.compare_exchange_strong(claimed_ns, now_ns);
}

bool RankWatcher::is_ending() {
  return head().end_at_ns != 0 || head().end_claimed_ns != 0 ||
         std::ranges::any_of(shared_.slots(), [](const RankSlot& slot) { return slot.end == RankEnd::failed; });
}

void RankWatcher::send_to_others(DatagramKind kind, std::span<const RankState> states) const {
  if (!heartbeats_) return;
  for (std::size_t rank = 0; rank < roster_.host_of_rank.size(); ++rank) {
    if (roster_.host_of_rank[rank] != view_.own_host()) heartbeats_->send(kind, states, static_cast<int>(rank));
  }
}

void RankWatcher::end_host(std::int64_t at_ns) {
  std::int64_t none = 0;
  head().end_at_ns.compare_exchange_strong(none, at_ns);
}

void RankWatcher::kill_stopped_processes() {
  for (const RankSlot& slot : shared_.slots()) {
    const auto process = read_process(slot.process);
    if (process && process->started == slot.started && process->state == 'T') ::kill(slot.process, SIGKILL);
  }
}

}  // namespace tutti
