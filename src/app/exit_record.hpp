#pragma once
// What a run that came to an early end leaves in its folder: exit.json, by whoever was the first to fail, since
// launchers hide exit statuses.

#include "tutti/base/exit_status.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/watch/stall_watch.hpp"

#include <optional>
#include <string>

namespace tutti {

struct ExitRecord {
  ExitStatus status = ExitStatus::internal;
  int rank = 0;
  std::string host{};
  std::string reason{};
  std::optional<Place> place{};  // where that rank was
};

// Best effort: the message on stderr is the report, and this must not fail in its turn. Nowhere where there is no
// folder, or where it is no longer the run's.
void leave_exit_record(const OwnedFolder& folder, const ExitRecord& record);

}  // namespace tutti
