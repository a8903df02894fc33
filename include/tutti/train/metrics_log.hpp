#pragma once
// OUT/metrics.jsonl: one JSON object per line, appended and handed to the system line by line, so that a killed run
// loses none. Readers keep the last record per (event, step). Each ends with "unix_time": when it was written, in
// seconds since 1970.
//
//   {"event":"run","command_line":[..],"version":"..","libraries":"..","device":"..", ...,"step":0}
//                               first, and again after every resume, written by the program: what ran, and the number
//                               of steps that were done before; startup_seconds: since its process was started
//   {"event":"epoch","epoch":1,"step":235,"train_loss":..,"train_acc":..,"test_loss":..,"test_acc":..,"seconds":..,
//    "test_seconds":..,"images_per_second":..,"lr":..,"digest":"16 hexadecimal digits","redone_steps":1}
//                               test figures null without a test set, a loss where it is not finite; redone_steps: how
//                               often a step was computed again on a coarser grid (--exchange exact)
//   {"event":"step","step":50,"train_loss":..,"train_acc":..,"lr":..}     means since the last such record, or a resume
//   {"event":"digest","step":50,"weights":"..","gradients":"..","optimizer":"..","statistics":".."}
//                                                                     statistics only where the network has any
//   {"event":"divergence","step":50,"equal_after":40,"ranks":[2],"tensors":["parameters/conv1/weight"]}
//                                                  equal_after null where replicas were never shown to be equal
//   {"event":"time","epoch":1,"step":235,"seconds":..,"data":..,"compute":..,"communication":..,"waiting":..,
//    "evaluation":..,"checkpoint":..,"other":..,"worst":{"rank":2,"host":"n1","phase":"data","seconds":..},
//    "ranks":[{"data":..,..},..]}     where the time since the last such record went: seconds, means over the ranks,
//                                     and rank by rank up to 64; worst, null if alone, kept each other waiting so long
//   {"event":"skipped","step":50,"rank":0,"tensor":"conv1/weight"}       of a step that has changed nothing
//   {"event":"checkpoint","step":50,"file":"step-00000050.h5","bytes":..,"seconds":..,"stall_seconds":..}
//                               of every attempt to save, written by the program; one that failed has "failure", too,
//                               and where a full disk made older ones go early, "given_up":[10,20], their steps
//   {"event":"end","step":50,"status":"done"}       last, of a run that did not fail: "done", or "stopped" on request

#include "tutti/storage/line_file.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/watch/time_account.hpp"

#include <functional>
#include <string>

namespace tutti {

// Keeps a run's reports in a file of some form, on rank 0; a form ignores what it has no place for. All calls throw
// save errors that name the path; after one, the next report may still be kept.
class RunRecorder : public RunObserver {
 public:
  // A record that the program makes by itself: one whole JSON object on one line.
  virtual void on_line(const std::string& /*json*/) {}
  // Where the time since the last such report went.
  virtual void on_time(const EpochEnd&, const TimeReport&) {}
};

class MetricsLog : public RunRecorder {
 public:
  // Opens for appending. Throws a save error that names the path. Lines are dropped where the file is no longer the
  // run's to write, which `is_ours` says.
  explicit MetricsLog(
      const std::string& path, std::function<bool()> is_ours = [] { return true; });

  void on_line(const std::string& json) override;
  void on_epoch(const EpochReport& report) override;
  void on_stretch(const StretchReport& report) override;
  void on_digest(const DigestReport& report) override;
  void on_divergence(const DivergenceReport& report) override;
  void on_skipped(const SkippedReport& report) override;
  void on_time(const EpochEnd& end, const TimeReport& time) override;

 private:
  LineFile file_;
  std::function<bool()> is_ours_;
};

}  // namespace tutti
