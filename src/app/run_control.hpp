#pragma once
// Decides at step boundaries whether a run has to save, or to save and stop, for reasons other than its plan: a signal
// at any rank, the time limit, a stdout whose reader is gone, or a save interval in seconds; and when the hosts keep
// its state in memory. Also ends runs that can no longer save. All ranks decide the same, at most two boundaries after
// the cause.

#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/train/run_observer.hpp"

#include "streams_and_signals.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tutti {

struct RunLimits {
  double save_every = 0;              // seconds between two saves; 0: no saves by time
  bool keeps = false;                 // the state in memory, as often as that takes at most 1 % of the time
  double time_limit = 0;              // seconds of the clock; 0: none
  std::int64_t checkpoint_bytes = 0;  // estimates the time of a save until one has been measured
  OwnedFolder folder{};               // for the checkpoints
};

class RunControl {
 public:
  // World and signals are borrowed. The clock starts with the program; the clock of rank 0 decides.
  RunControl(World& world, const StopSignals& signals, const RunLimits& limits,
             std::function<double()> clock = process_clock());

  // Not to be called again after it returned save_and_stop. Throws a save error on all ranks if the folder no longer
  // belongs to the run, or after end_for(). Collective.
  BoundaryAction at_boundary();
  // A snapshot of the state was made for any reason: the save interval starts again.
  void on_snapshot() { last_save_ = clock_(); }
  // The seconds that a save took, from the copy of the state to its verification. Only used on rank 0.
  void saved(double seconds);
  // The seconds that it took to keep a state, which may be kept again. Only used on rank 0.
  void kept(double seconds);
  // Ends the run, with a save error for this reason, at one of the next boundaries.
  void end_for(const std::string& failure) { failure_ = failure; }
  // Why the run stops, valid on all ranks: "SIGUSR1 at rank 2 on host n1".
  const std::string& reason() const { return reason_; }

 private:
  BoundaryAction action_for(std::int64_t request);
  std::int64_t local_request();
  bool has_lost_folder();
  void measure_gap();
  double seconds_to_stop() const;

  World& world_;
  const StopSignals& signals_;
  RunLimits limits_;
  std::function<double()> clock_;
  bool is_pending_ = false;  // a reduction of the requests has started
  double now_;
  double last_save_;
  std::optional<double> last_boundary_{};
  double last_gap_ = 0;
  double longest_two_gaps_ = 0;
  double longest_save_;
  bool has_saved_ = false;
  double next_keep_ = 0;
  double last_check_;    // of the folder
  std::string loss_;     // why it no longer belongs to the run
  std::string failure_;  // to save; empty: none that ends the run
  std::string reason_;
};

}  // namespace tutti
