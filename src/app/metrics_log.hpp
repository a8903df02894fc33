#pragma once
// OUT/metrics.jsonl: one JSON object per line, appended and written line by line, so that a killed run loses none.
// Readers use the last record per (event, step). Each ends with "unix_time", the seconds since 1970, and "hash": the
// records form a chain, also across resumes. A hash is the SHA-256 of the previous record's hash (as text; empty before
// the first) and of the record without this field.
//
//   {"event":"run","command_line":[..],"version":"..","libraries":"..","device":"..", ...,"step":0}
//                               first, and again after every resume: what runs, and the number of steps done before;
//                               startup_seconds: since the start of its process; resumed_from: the checkpoint, or the
//                               state kept in a host's memory
//   {"event":"epoch","epoch":1,"step":235,"train_loss":..,"train_acc":..,"test_loss":..,"test_acc":..,"seconds":..,
//    "test_seconds":..,"images_per_second":..,"lr":..,"digest":"16 hexadecimal digits","redone_steps":1,
//    "audits":2}
//                               test figures are null without a test set, a loss where it is not finite; redone_steps:
//                               steps computed again on a coarser grid (--exchange exact);
//                               audits: parts audited in this launch, with --audit-every; none of them was wrong
//   {"event":"step","step":50,"train_loss":..,"train_acc":..,"lr":..}
//                               averages over the steps since the previous record or resume
//   {"event":"digest","step":50,"weights":"..","gradients":"..","optimizer":"..","statistics":"..",
//    "averages":".."}                       statistics only where the network has any; averages only with --ema
//   {"event":"divergence","step":50,"equal_after":40,"ranks":[2],"tensors":["parameters/conv1/weight"]}
//                                                  equal_after is null if they were never shown to be equal
//   {"event":"audit","step":30,"part":5,"ranks":[2],"decided":true,"layer":"conv1","pass":"backward","repeats":true,
//    "right_at":20}             a part that these ranks computed wrong; if not decided, any of them; repeats: again,
//                               when repeated; right_at: the last step in which an audit confirmed the first, or 0
//   {"event":"time","epoch":1,"step":235,"seconds":..,"data":..,"compute":..,"communication":..,"waiting":..,
//    "evaluation":..,"checkpoint":..,"other":..,"worst":{"rank":2,"host":"n1","phase":"data","seconds":..},
//    "core_images_per_second":..,"rank_images_per_second":..,"ranks":[{"data":..,..},..]}
//                               the time since the last such record, in seconds: means over the ranks, and each rank,
//                               up to 64; worst: how long this rank made each other wait, null if alone; the images
//                               that a core prepares, and that a rank trains on if it never waits for one
//   {"event":"skipped","step":50,"rank":0,"tensor":"conv1/weight"}       a step that changed no weight
//   {"event":"checkpoint","step":50,"file":"step-00000050.h5","bytes":..,"seconds":..,"stall_seconds":..}
//                               every attempt to save; one that failed has "failure", too, and "given_up":[10,20] lists
//                               the steps of older ones that were deleted early because the disk was full
//   {"event":"end","step":50,"status":"done"}       last, of a run that did not fail: "done", or "stopped" on request;
//                               "reason": why it ended early (--stop-at-accuracy, --patience)

#include "tutti/storage/atomic_file.hpp"
#include "tutti/train/run_observer.hpp"
#include "tutti/watch/time_profile.hpp"

#include "input_rates.hpp"

#include <functional>
#include <string>

namespace tutti {

// Writes a run's reports to a file on rank 0. All calls throw save errors that name the path; later reports may still
// be written.
class MetricsLog final : public RunObserver {
 public:
  // Opens for appending. Throws a save error that names the path. Lines are dropped while `is_ours` returns false:
  // the folder then no longer belongs to this run.
  explicit MetricsLog(
      const std::string& path, std::function<bool()> is_ours = [] { return true; });

  // Appends a record of the program: one JSON object on one line.
  void on_line(const std::string& json);
  void on_epoch(const EpochReport& report) override;
  void on_interval(const IntervalReport& report) override;
  void on_digest(const DigestReport& report) override;
  void on_divergence(const DivergenceReport& report) override;
  void on_wrong_part(const WrongPartReport& report) override;
  void on_skipped(const SkippedReport& report) override;
  // Appends the time since the previous such record, by phase.
  void on_time(const EpochEnd& end, const TimeReport& time, const InputRates& input);

  // The hash of the last record in the file; empty if there is none.
  const std::string& hash() const { return hash_; }

 private:
  LineFile file_;
  std::function<bool()> is_ours_;
  std::string hash_;
};

}  // namespace tutti
