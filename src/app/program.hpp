#pragma once
// How the program ends: every failure is reported once, with its status, in a way that leaves no rank behind.

#include "tutti/base/error.hpp"
#include "tutti/comm/world.hpp"
#include "tutti/storage/folder_lock.hpp"
#include "tutti/watch/stall_watch.hpp"

#include "process.hpp"

#include <functional>
#include <string>

namespace tutti {

// Where an early end is recorded besides stderr: the first rank to fail, or rank 0 of a run that was stopped, leaves
// folder/exit.json. Empty: nowhere.
struct EndRecord {
  OwnedFolder folder{};
  std::string reason{};                  // of a run that was stopped
  StallWatch* watch = nullptr;           // borrowed; null: nobody watches for stalled ranks
  const StopSignals* signals = nullptr;  // borrowed; of a training that stops for them
};

// Carries out `work` on this rank and returns the process's exit status. An error that all ranks raise alike is
// printed by rank 0 and all leave in order; one that this rank met alone is printed here, with rank and host, and the
// whole job is ended. Collective.
int run_guarded(World& world, const EndRecord& record, const std::function<ExitStatus()>& work);

}  // namespace tutti
