#pragma once
// The states of a run that its hosts keep in memory (--keep-steps), so that a restart after ranks were lost repeats few
// steps. Each host has the newest two, as checkpoints in a folder of /dev/shm that outlives the processes. It belongs
// to one user, host and --out, and is removed when the run has ended and saved its state.

#include "tutti/base/log.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/checkpoint_store.hpp"

#include "findings.hpp"
#include "run_config.hpp"

#include <cstdint>
#include <optional>
#include <string>

namespace tutti {

// Two, and the next one while it is written.
inline constexpr int kKeptAtOnce = 3;

class KeptStates {
 public:
  // Of the run in the folder `out`, on this host. Collective.
  KeptStates(World& world, const std::string& out);

  // Empty but on the rank of each host that keeps its state.
  const std::string& folder() const { return folder_; }

  // The newest state after step `after` on any host that belongs to the run's history: one of the launches in
  // metrics.jsonl kept it, before a later launch with other options began, and no audit has found that it may be wrong.
  // Its path names the host. Collective.
  std::optional<LoadedCheckpoint> newest(World& world, std::int64_t after, const Log& log) const;
  // Makes its folder again whenever that is gone.
  CheckpointStore store() const;
  // Makes the folder, without states of later steps than that at which the run begins. Throws a save error.
  void begin(std::int64_t step) const;
  void remove() const;
  // An error, with --keep-steps auto a warning, if /dev/shm cannot hold states of so many bytes.
  Findings check_room(const std::string& host, std::int64_t state_bytes, const KeepInterval& interval) const;

 private:
  std::string out_;
  std::string folder_;
};

}  // namespace tutti
