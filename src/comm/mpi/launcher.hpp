#pragma once
// What launchers leave in the environment of the processes they start, before MPI is initialised.

#include <optional>
#include <string>

namespace tutti::mpi {

// The number of processes in the job, and on this host under Open MPI's launcher.
std::optional<int> launched_size();
std::optional<int> launched_local_size();
// Who started this process, for messages: "Open MPI's mpirun".
std::string launcher_name();
// Whether this is one of several tasks of a Slurm step whose library must find the others by another means than PMIx.
bool started_by_slurm_without_pmix();

}  // namespace tutti::mpi
