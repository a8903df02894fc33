#pragma once
// What launchers tell the processes they start, through the environment, before MPI is initialised.

#include <optional>

namespace tutti::mpi {

// The number of processes in the job, or on this host, where the launcher says.
std::optional<int> launched_size();
std::optional<int> launched_local_size();

}  // namespace tutti::mpi
