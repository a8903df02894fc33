#pragma once
// Keeps account of where one rank's time goes, and brings the ranks' accounts together. All ranks meet equally often;
// whoever waits the shortest came last and waits for the transfer alone, and all the others waited for that rank. So no
// clocks of several hosts are compared.

#include "tutti/comm/world.hpp"
#include "tutti/watch/rank_status.hpp"
#include "tutti/watch/time_report.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

class TimeAccount : public PlaceListener {
 public:
  // Both borrowed; counts from here on. Collective.
  TimeAccount(World& world, RankStatus& rank_status);
  TimeAccount(const TimeAccount&) = delete;
  TimeAccount& operator=(const TimeAccount&) = delete;
  ~TimeAccount() override;

  void on_end(const Stay& stay) override;
  // After every step. Collective.
  void count_step();
  // Of the time since the last one, in the thread that trains. Collective.
  TimeReport report();

 private:
  void fold();
  LateRank latest(const std::vector<TimeShares>& ranks) const;

  World& world_;
  RankStatus& rank_status_;
  std::vector<std::string> hosts_;
  std::array<std::int64_t, kPhases> spent_ns_{};
  std::vector<float> waits_;  // seconds, of the collectives that are not brought together yet
  std::int64_t steps_ = 0;
  double transfers_ = 0;            // seconds
  std::vector<double> waited_for_;  // by rank: the seconds that each other one waited for it, on average
};

}  // namespace tutti
