#pragma once
// When a run is to save, or to save and stop, besides what its plan says: because a signal came to any rank, because
// its time ends soon, nobody reads its stdout any more, or so many seconds have passed. Asked at step boundaries; all
// ranks answer alike, at most two boundaries after the cause.

#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/train/run_observer.hpp"

#include "process.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace tutti {

struct RunLimits {
  double save_every = 0;              // seconds between two saves; 0: none by the clock
  double time_limit = 0;              // seconds of `clock`; 0: none
  std::int64_t checkpoint_bytes = 0;  // of one, for what it may take as long as none has been saved
  OwnedFolder folder{};               // that it saves in
};

class RunControl {
 public:
  // World and signals are borrowed. The clock counts from the program's start, and that of rank 0 decides.
  RunControl(World& world, const StopSignals& signals, const RunLimits& limits,
             std::function<double()> clock = process_clock());

  // After save_and_stop it is not to be asked again. Throws a save error on all ranks when the folder is no longer the
  // run's. Collective.
  BoundaryAction at_boundary();
  // A state was taken, for whatever reason: the seconds until the next save count from now.
  void took_state() { last_save_ = clock_(); }
  // What a save has taken from the copy of the state until it was proven good. For rank 0; others may call it.
  void saved(double seconds);
  // Why the run stops, on all ranks: "SIGUSR1 at rank 2 on host n1".
  const std::string& reason() const { return reason_; }

 private:
  BoundaryAction follow(std::int64_t word);
  std::int64_t own_word();
  bool has_lost_folder();
  void watch_pace();
  double seconds_to_stop() const;

  World& world_;
  const StopSignals& signals_;
  RunLimits limits_;
  std::function<double()> clock_;
  bool is_asking_ = false;
  double now_;
  double last_save_;
  std::optional<double> last_boundary_{};
  double last_gap_ = 0;
  double longest_two_gaps_ = 0;
  double longest_save_;
  bool has_saved_ = false;
  double last_look_;  // at the folder
  std::string loss_;  // why it is no longer the run's
  std::string reason_;
};

}  // namespace tutti
