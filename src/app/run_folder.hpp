#pragma once
// The folder of a run that keeps something: made, locked for this job, and searched for what to go on from.

#include "tutti/base/log.hpp"
#include "tutti/checkpoint/checkpoint_store.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"

#include "run_config.hpp"

#include <optional>

namespace tutti {

class RunFolder {
 public:
  // Makes config.out, keeps other jobs out of it as long as this lives, and clears what killed ones have left. Throws
  // alike on all ranks where that cannot be, or where it holds checkpoints and the run is no resume. Collective.
  RunFolder(World& world, const RunConfig& config, const Log& log);

  const CheckpointStore& store() const { return store_; }
  // On all ranks.
  const OwnedFolder& owned() const { return owned_; }

 private:
  CheckpointStore store_;
  std::optional<FolderLock> lock_;  // rank 0's
  OwnedFolder owned_;
};

}  // namespace tutti
