#pragma once
// Keeps two jobs out of one folder. The system drops the lock when its holder ends, however that comes about, also on
// another host where the file system passes locks on; where it knows none, a warning is all there is.

#include "tutti/base/log.hpp"
#include "tutti/base/unique_handle.hpp"

#include <string>
#include <utility>

namespace tutti {

class FolderLock {
 public:
  // Locks folder/lock and writes into it who holds it: host, process and, under Slurm, job and restart. Waits up to
  // `wait_seconds` for a holder that may be ending; one that is an earlier start of our own Slurm job is passed by.
  // Throws an input error that names the holder, or a save error where the file cannot be made.
  FolderLock(const std::string& folder, double wait_seconds, const Log& log);

  // What it has written, by which it is told from any other lock.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  Descriptor descriptor_;
};

// A folder that a run has locked, for all of its ranks: whether it is still the run's can be asked before every write.
class OwnedFolder {
 public:
  OwnedFolder() = default;  // none
  // `lock` is the text of the run's lock.
  OwnedFolder(std::string folder, std::string lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  const std::string& path() const { return folder_; }
  // Why nothing more may be written there: the folder was removed, renamed or given to another run. Empty while it is
  // the run's, or where the system cannot say.
  std::string loss() const;
  // Throws that as a save error.
  void require() const;

 private:
  std::string folder_;
  std::string lock_;
};

// Throws as FolderLock does where somebody holds the lock who would not be passed by. Changes nothing and is in
// nobody's way; passes where the file system does not say.
void refuse_locked(const std::string& folder);

}  // namespace tutti
