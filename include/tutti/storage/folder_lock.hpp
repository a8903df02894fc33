#pragma once
// Keeps two jobs out of one folder. The system drops the lock when its holder ends, however that comes about, also on
// another host where the file system passes locks on; where it knows none, a warning is all there is.

#include "tutti/base/descriptor.hpp"
#include "tutti/base/log.hpp"

#include <string>

namespace tutti {

class FolderLock {
 public:
  // Locks folder/lock and writes into it who holds it: host, process and, under Slurm, job and restart. Waits up to
  // `patience_seconds` for a holder that may be ending; one that is an earlier start of our own Slurm job is passed by.
  // Throws an input error that names the holder, or a save error where the file cannot be made.
  FolderLock(const std::string& folder, double patience_seconds, const Log& log);

 private:
  Descriptor descriptor_;
};

// Whether somebody holds it, asked without being in anybody's way. False where the file system does not say.
bool is_locked(const std::string& folder);

}  // namespace tutti
