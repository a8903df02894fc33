#pragma once
// Where the time of the training went, rank by rank, and which rank the others waited for. A run prints it as
//
//   time 12.3 s: data 1 %, compute 81 %, communication 9 %, waiting 6 % (0.7 s for rank 2 on n1: data), evaluation 2 %,
//   checkpoint 1 %, other 0 %

#include "tutti/base/words.hpp"
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
  communication,  // not hidden behind compute: driving sums, and their transfers once all ranks have come
  waiting,        // for other ranks to come
  evaluation,
  checkpoint,
  other,
};
constexpr std::array<std::string_view, 7> words_of(TimeShare) {
  return {"data", "compute", "communication", "waiting", "evaluation", "checkpoint", "other"};
}
inline constexpr std::size_t kTimeShares = words_of(TimeShare{}).size();

// Seconds, by TimeShare.
struct TimeShares {
  std::array<double, kTimeShares> seconds{};

  double& operator[](TimeShare share) { return seconds[static_cast<std::size_t>(share)]; }
  double operator[](TimeShare share) const { return seconds[static_cast<std::size_t>(share)]; }
  double sum() const;
};

struct Straggler {
  int rank = 0;
  std::string host;
  TimeShare cause = TimeShare::other;  // what took it longer than the others
  double seconds = 0;                  // that each of the others waited for it, on average
};

struct TimeReport {
  std::vector<TimeShares> ranks;
  std::optional<Straggler> straggler;  // the rank that was waited for most; none where a rank is alone

  double seconds() const { return ranks.front().sum(); }
  TimeShares mean() const;
};

// Whether the ranks have waited for each other, or for their input, for more than a tenth of the time.
bool is_notable(const TimeReport& report);
std::string time_line(const TimeReport& report);

// The sum of several reports. Its straggler is the one that was waited for most of those that the reports name.
class TimeTotal {
 public:
  void add(const TimeReport& report);
  TimeReport report() const;

 private:
  std::vector<TimeShares> ranks_;
  std::map<int, Straggler> stragglers_;
};

// Accounts for the time of one rank, and brings the ranks' accounts together. All ranks take part in the same
// collectives: the rank that waits the shortest came last and waits for the transfer alone, and all the others waited
// for that rank. So no clocks of several hosts are compared.
class TimeAccount : public PhaseListener {
 public:
  // Both borrowed; counts from here on. Collective.
  TimeAccount(World& world, RankStatus& rank_status);
  TimeAccount(const TimeAccount&) = delete;
  TimeAccount& operator=(const TimeAccount&) = delete;
  ~TimeAccount() override;

  void on_end(const PhaseSpan& span) override;
  // After every step. Collective.
  void count_step();
  // Of the time since the last one, in the thread that trains. Collective.
  TimeReport report();

 private:
  void compare_waits();
  Straggler find_straggler(const std::vector<TimeShares>& ranks) const;

  World& world_;
  RankStatus& rank_status_;
  std::vector<std::string> hosts_;
  std::array<std::int64_t, kPhases> spent_ns_{};
  std::vector<float> waits_;  // seconds, in the collectives that the ranks have not compared yet
  std::int64_t steps_ = 0;
  double transfers_ = 0;            // seconds
  std::vector<double> waited_for_;  // by rank: the seconds that each other one waited for it, on average
};

}  // namespace tutti
