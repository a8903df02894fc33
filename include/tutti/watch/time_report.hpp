#pragma once
// Where the time of a stretch of training went, rank by rank, and who made the others wait. What a run prints of it:
//
//   time 12.3 s: data 1 %, compute 81 %, communication 9 %, waiting 6 % (0.7 s for rank 2 on n1: data), evaluation 2 %,
//   checkpoint 1 %, other 0 %

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

enum class TimeShare : std::size_t {
  data,
  compute,
  communication,  // not hidden behind compute: this rank's own driving of sums, and their going when all have come
  waiting,        // for other ranks to come
  evaluation,
  checkpoint,
  other,
};
inline constexpr std::size_t kTimeShares = 7;
const char* name_of(TimeShare share);

// Seconds, by TimeShare.
struct TimeShares {
  std::array<double, kTimeShares> seconds{};

  double& operator[](TimeShare share) { return seconds[static_cast<std::size_t>(share)]; }
  double operator[](TimeShare share) const { return seconds[static_cast<std::size_t>(share)]; }
  double sum() const;
};

struct LateRank {
  int rank = 0;
  std::string host;
  TimeShare cause = TimeShare::other;  // what took it longer than the others
  double seconds = 0;                  // that each of the others waited for it, on average
};

struct TimeReport {
  std::vector<TimeShares> ranks;
  std::optional<LateRank> latest;  // none where a rank is alone

  double seconds() const { return ranks.front().sum(); }
  TimeShares mean() const;
};

// Whether the ranks have waited for each other, or for their input, for more than a tenth of the time.
bool is_worth_a_look(const TimeReport& report);
std::string time_line(const TimeReport& report);

// The reports of several stretches as one of them all. The rank that others waited for is the one that most was waited
// for of those that the reports name.
class TimeTotal {
 public:
  void add(const TimeReport& report);
  TimeReport report() const;

 private:
  std::vector<TimeShares> ranks_;
  std::map<int, LateRank> late_;
};

}  // namespace tutti
