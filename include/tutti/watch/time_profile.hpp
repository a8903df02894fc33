#pragma once
// How the training time divides into phases on each rank, and which rank the others waited for. A run prints it as
//
//   time 12.3 s: data 1 %, compute 81 %, communication 9 %, waiting 6 % (0.7 s for rank 2 on n1: data), evaluation 2 %,
//   checkpoint 1 %, other 0 %

#include "tutti/base/enum_names.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

enum class TimeShare : std::size_t {
  data,
  compute,
  communication,  // not overlapped with compute: driving collectives, and their transfers once all ranks have arrived
  waiting,        // for other ranks to arrive
  evaluation,
  checkpoint,
  other,
};
constexpr std::array<std::string_view, 7> enum_names(TimeShare) {
  return {"data", "compute", "communication", "waiting", "evaluation", "checkpoint", "other"};
}
inline constexpr std::size_t kTimeShares = enum_names(TimeShare{}).size();

// Seconds, by TimeShare.
struct TimeShares {
  std::array<double, kTimeShares> seconds{};

  double& operator[](TimeShare share) { return seconds[static_cast<std::size_t>(share)]; }
  double operator[](TimeShare share) const { return seconds[static_cast<std::size_t>(share)]; }
  double sum() const;
};

// The rank that the others waited for longest.
struct LongestWait {
  int rank = 0;
  std::string host;
  TimeShare cause = TimeShare::other;  // the share in which it was slowest compared with the others
  double seconds = 0;                  // waited for it by each other rank, on average
};

struct TimeReport {
  std::vector<TimeShares> ranks;
  std::optional<LongestWait> longest_wait;  // none with a single rank

  double seconds() const { return ranks.front().sum(); }
  TimeShares mean() const;
};

// Whether waiting for other ranks, or for input, took more than a tenth of the time.
bool is_notable(const TimeReport& report);
std::string time_line(const TimeReport& report);

// The sum of reports. Its longest wait is the longest of the ranks in the reports.
class TimeProfileSum {
 public:
  void add(const TimeReport& report);
  TimeReport report() const;

 private:
  std::vector<TimeShares> ranks_;
  std::map<int, LongestWait> longest_waits_;
};

// Measures the time that one rank spends in each phase, and gathers all ranks' measurements. All ranks take part in the
// same collectives: the rank with the shortest wait arrived last and waited only for the transfer, and all others
// waited for that rank. So clocks of different hosts are never compared.
class TimeProfile : public PhaseListener {
 public:
  // Both borrowed. Starts measuring. Collective.
  TimeProfile(World& world, RankStatus& rank_status);
  TimeProfile(const TimeProfile&) = delete;
  TimeProfile& operator=(const TimeProfile&) = delete;
  ~TimeProfile() override;

  void on_end(const PhaseSpan& span) override;
  // Call it after every step. Collective.
  void count_step();
  // Reports the time since the last report. Call it in the training thread. Collective.
  TimeReport report();

 private:
  void compare_waits();
  LongestWait find_longest_wait(const std::vector<TimeShares>& ranks) const;

  World& world_;
  RankStatus& rank_status_;
  std::vector<std::string> hosts_;
  std::array<std::int64_t, kPhases> spent_ns_{};
  std::vector<float> waits_;  // seconds, of the collectives not compared between ranks yet
  std::int64_t steps_ = 0;
  double transfers_ = 0;            // seconds
  std::vector<double> waited_for_;  // by rank: seconds that each other rank waited for it, on average
};

}  // namespace tutti
