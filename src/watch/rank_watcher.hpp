#pragma once
// What a rank's watch thread does at each tick: it publishes its rank's state and reads the others'. The host's leader
// also sends the states of its host's ranks to the hosts that check the job, or checks the job itself.

#include "tutti/watch/stall_watch.hpp"

#include "heartbeats.hpp"
#include "shared_status.hpp"
#include "stragglers.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti {

// The report with which the job is ended.
struct JobEnd {
  StallReport report{};
  std::string table{};
  bool launcher_ends_job = false;  // a process died: launchers notice that and set the exit status
  bool is_of_minority = false;     // the other side's report is to be recorded, if there is one: sees_minority()
};

class RankWatcher {
 public:
  // Collective.
  RankWatcher(World& world, const std::string& interface, const Log& log);

  RankSlot& own() { return shared_.own(); }
  SharedStatusHeader& head() { return shared_.head(); }
  int descriptor() const { return heartbeats_ ? heartbeats_->descriptor() : -1; }

  // Call it at regular intervals. Empty: the job continues.
  std::optional<JobEnd> tick(const StallCheck::Timing& timing);
  // A rank of this host that died without a message and that no rank has reported yet.
  std::optional<JobEnd> find_gone(std::int64_t now_ns);
  // Sends the states to the hosts that check the job.
  void report(std::int64_t now_ns);
  // Sends the states to all hosts, before this rank ends the job itself.
  void report_failure(std::int64_t now_ns) { send_to_others(DatagramKind::report, shared_.read(now_ns)); }
  // Claims the task of reporting why the job ends and ending it. False: another rank of this host has claimed it.
  bool claim_end(std::int64_t now_ns);
  // Whether this host has begun to end the job, or one of its ranks has failed.
  bool is_ending();
  // Announces to all other hosts that the job is ending.
  void announce_end() const { send_to_others(DatagramKind::ending, {}); }
  // The time that the processes of this host have to end after another host's announcement.
  static constexpr double kEndSeconds = 1.5;
  void end_host(std::int64_t at_ns);
  // Kills those processes of this host that cannot end themselves because they are stopped.
  void kill_stopped_processes();

 private:
  void receive(std::int64_t now_ns);
  void send_to_others(DatagramKind kind, std::span<const RankState> states) const;
  bool checks_job(std::int64_t now_ns, double lost_seconds) const;
  std::int64_t report_interval_ns() const;
  std::optional<JobEnd> act_on(const StallFinding& finding, std::span<const RankView> ranks);
  void warn_of_never_contacted(std::int64_t now_ns);

  Log log_;
  SharedStatus shared_;
  Roster roster_;
  std::optional<Heartbeats> heartbeats_;  // if there are other hosts
  std::int64_t begun_ns_;
  JobView view_;
  StallCheck check_;
  std::int64_t states_sent_ns_ = 0;
  bool checks_for_lost_hosts_ = false;  // this host checks the job since those that usually do are lost
  bool warned_of_never_contacted_ = false;
};

}  // namespace tutti
