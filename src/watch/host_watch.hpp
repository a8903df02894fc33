#pragma once
// One rank's part in the watch, beat by beat: tells of its rank and looks at the others; and, where it is the one to
// act, sends what its host knows to those who judge, or judges.

#include "tutti/watch/stall_watch.hpp"

#include "heartbeats.hpp"
#include "job_view.hpp"
#include "roster.hpp"
#include "stall_judge.hpp"
#include "watch_page.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tutti {

// What is to be told as the job is ended.
struct Verdict {
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
  std::optional<Verdict> beat(const StallJudge::Look& look);
  // A rank of this host that is gone without a word, of whose end nobody has told.
  std::optional<Verdict> find_gone(std::int64_t now_ns);
  // For those who judge, before this rank is gone.
  void report(std::int64_t now_ns);
  // For all, before this rank ends the job by itself.
  void tell_failure(std::int64_t now_ns);
  // Whether this rank is the one of its host to tell why the job ends, and to end it: nobody has, or has come to that.
  bool is_to_tell(std::int64_t now_ns);
  // Whether the end of the job was begun here, or a rank of this host has failed.
  bool is_ending();
  // To all other hosts.
  void announce_end() const;
  // When another host has announced it, this one's processes get so long.
  static constexpr double kEndSeconds = 1.5;
  void end_host(std::int64_t at_ns);
  // Processes of this host that could not end by themselves.
  void kill_stopped();

 private:
  void receive(std::int64_t now_ns);
  void send_to_others(const Datagram& datagram) const;
  bool is_to_judge(std::int64_t now_ns, double lost_seconds) const;
  std::int64_t report_interval_ns() const;
  std::optional<Verdict> tell(const StallFinding& finding, std::span<const RankView> ranks);
  Verdict verdict(const LateRanks& late, std::span<const RankView> ranks) const;
  void tell_unheard(std::int64_t now_ns);

  World& world_;
  Log log_;
  WatchPage page_;
  Roster roster_;
  std::optional<Heartbeats> beats_;  // where there are other hosts
  std::int64_t begun_ns_;
  PageReader reader_;
  JobView view_;
  StallJudge judge_;
  std::int64_t reported_ns_ = 0;
  bool told_unheard_ = false;
};

}  // namespace tutti
