#pragma once
// One rank's share of the watch, beat by beat: it publishes its rank's state and reads the others'; and where it is the
// one that acts for its host, it sends what the host knows to those hosts that check the job, or checks it.

#include "tutti/watch/stall_watch.hpp"

#include "heartbeats.hpp"
#include "host_page.hpp"
#include "stragglers.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti {

// What is reported as the job is ended.
struct JobEnd {
  StallReport report{};
  std::string table{};
  bool by_launcher = false;  // a process is gone, which launchers notice, and have a status for
};

class HostWatch {
 public:
  // Collective.
  HostWatch(World& world, const std::string& interface, const Log& log);

  RankSlot& own() { return page_.own(); }
  PageHead& head() { return page_.head(); }
  int descriptor() const { return beats_ ? beats_->descriptor() : -1; }

  // One beat. Empty: the job goes on.
  std::optional<JobEnd> beat(const StallCheck::Look& look);
  // A rank of this host that is gone without a message, of whose end nobody has reported.
  std::optional<JobEnd> find_gone(std::int64_t now_ns);
  // To the hosts that check the job, before this rank is gone.
  void report(std::int64_t now_ns);
  // To all hosts, before this rank ends the job by itself.
  void report_failure(std::int64_t now_ns);
  // Whether this rank is the one of its host to report why the job ends, and to end it: no other one has begun to.
  bool claim_end(std::int64_t now_ns);
  // Whether the end of the job was begun here, or a rank of this host has failed.
  bool is_ending();
  // To all other hosts.
  void announce_end() const;
  // When another host has announced it, this one's processes have this long.
  static constexpr double kEndSeconds = 1.5;
  void end_host(std::int64_t at_ns);
  // Processes of this host that could not end by themselves.
  void kill_stopped();

 private:
  void receive(std::int64_t now_ns);
  void send_to_others(const Datagram& datagram) const;
  bool checks_job(std::int64_t now_ns, double lost_seconds) const;
  std::int64_t report_interval_ns() const;
  std::optional<JobEnd> act_on(const StallFinding& finding, std::span<const RankView> ranks);
  void warn_of_unheard(std::int64_t now_ns);

  World& world_;
  Log log_;
  HostPage page_;
  Roster roster_;
  std::optional<Heartbeats> beats_;  // where there are other hosts
  std::int64_t begun_ns_;
  PageReader reader_;
  JobView view_;
  StallCheck check_;
  std::int64_t reported_ns_ = 0;
  bool warned_of_unheard_ = false;
};

}  // namespace tutti
