#pragma once
// OUT/metrics.jsonl: one JSON object per line, appended and handed to the system line by line, so that a killed run
// loses none. Readers keep the last record per (event, step).
//
//   {"event":"run", ...}        first, and again after every resume: what ran, written by the program
//   {"event":"epoch","epoch":1,"step":235,"train_loss":..,"train_acc":..,"test_loss":..,"test_acc":..,"seconds":..,
//    "images_per_second":..,"lr":..,"digest":"16 hexadecimal digits"}     test figures null without a test set
//   {"event":"step","step":50,"train_loss":..,"train_acc":..,"lr":..}     means since the last such record, or a resume
//   {"event":"digest","step":50,"weights":"..","gradients":"..","optimizer":"..","statistics":".."}
//                                                                     statistics only where the network has any
//   {"event":"divergence","step":50,"equal_after":40,"ranks":[2],"tensors":["parameters/conv1/weight"],"heals":true}
//                                                  equal_after null where replicas were never shown to be equal
//   {"event":"time","epoch":1,"step":235,"seconds":..,"data":..,"compute":..,"communication":..,"waiting":..,
//    "evaluation":..,"checkpoint":..,"other":..,"worst":{"rank":2,"host":"n1","phase":"data","seconds":..},
//    "ranks":[{"data":..,..},..]}     where the time since the last such record went: seconds, means over the ranks,
//                                     and rank by rank up to 64; worst, null if alone, kept each other waiting so long
//   {"event":"skipped","step":50,"rank":0,"tensor":"conv1/weight"}       of a step that has changed nothing
//   {"event":"checkpoint","step":50,"file":"step-00000050.h5","bytes":..,"seconds":..,"stall_seconds":..}
//                               of every attempt to save, written by the program; one that failed has "failure", too

#include "tutti/storage/line_file.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/watch/time_report.hpp"

#include <string>

namespace tutti {

class MetricsLog {
 public:
  // Opens for appending. All throw save errors that name the path; after one, the next record may be written.
  explicit MetricsLog(const std::string& path);

  // One whole JSON object on one line.
  void write_line(const std::string& json);
  void write(const EpochReport& report);
  void write(const StretchReport& report);
  void write(const DigestReport& report);
  void write(const DivergenceReport& report);
  void write(const EpochEnd& end, const TimeReport& time);
  void write(const SkippedReport& report);

 private:
  LineFile file_;
};

}  // namespace tutti
