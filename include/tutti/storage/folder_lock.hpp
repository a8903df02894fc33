#pragma once
// Keeps two jobs from using the same folder. The kernel releases the lock when its holder ends for any reason, also on
// another host if the file system supports that. If it supports no locks, there is only a warning.

#include "tutti/base/log.hpp"
#include "tutti/base/unique_handle.hpp"

#include <string>
#include <utility>

namespace tutti {

class FolderLock {
 public:
  // Locks folder/lock and writes the holder into it: host, process and, under Slurm, job and restart. Waits up to
  // `wait_seconds` for the lock. If the holder is an earlier start of the same Slurm job, takes the folder over.
  // Throws an input error that names the holder and the remedy, or a save error if the file cannot be created.
  FolderLock(const std::string& folder, double wait_seconds, const Log& log,
             const char* remedy = "choose another --out");

  // The contents of the lock file, which identify this lock.
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  Descriptor descriptor_;
};

// A folder that a run has locked, as seen by any of its ranks. Check before each write that the run still owns it.
class OwnedFolder {
 public:
  OwnedFolder() = default;  // none
  // `lock` is the text of the run's lock.
  OwnedFolder(std::string folder, std::string lock) : folder_(std::move(folder)), lock_(std::move(lock)) {}

  const std::string& path() const { return folder_; }
  // Why the run no longer owns the folder: it was removed, renamed or taken over by another run. Empty while the run
  // owns it, or if that cannot be determined.
  std::string loss_reason() const;
  // Throws loss_reason() as a save error unless it is empty.
  void require() const;

 private:
  std::string folder_;
  std::string lock_;
};

// Throws as FolderLock would if another process holds the lock. Does not take the lock or change the folder; returns if
// the file system cannot tell.
void refuse_locked(const std::string& folder);

}  // namespace tutti
