#pragma once
// The timeline of all ranks in one file for Perfetto or chrome://tracing, on rank 0's clock:
//
//   {"displayTimeUnit":"ms",
//    "otherData":{"clocks":[{"rank":1,"host":"n1","offset_us":..,"drift_us":..,"error_us":..},..]},
//    "traceEvents":[
//    {"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"rank 1 on n1"}},
//    {"name":"backward","cat":"train","ph":"X","pid":1,"tid":0,"ts":1234.5,"dur":89.0,"args":{"step":7,"epoch":1}},..]}
//
// Times are in microseconds since the trace started. It stays in memory until the run ends, and the oldest phases are
// dropped if there are too many. A run that fails writes no trace.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/watch/rank_clocks.hpp"
#include "tutti/watch/rank_status.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

class TraceFile : public PhaseListener {
 public:
  // Both are borrowed. The trace starts here. Collective.
  TraceFile(World& world, RankStatus& rank_status, std::string path);
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;
  ~TraceFile() override { rank_status_.remove(*this); }

  void on_end(const PhaseSpan& span) override;
  // Logs a summary of the file. If it cannot be written, logs the reason; the run does not fail. Collective.
  void write(const std::vector<EpochEnd>& epochs, const Log& log);

 private:
  World& world_;
  RankStatus& rank_status_;
  std::string path_;
  std::size_t most_;
  std::vector<PhaseSpan> spans_;
  std::size_t oldest_ = 0;
  ClockReading begin_;
};

}  // namespace tutti
