#pragma once
// The environment variables that launchers set, readable before MPI is initialised.

#include <optional>
#include <string>

namespace tutti::mpi {

// The number of processes in the job, if the launcher reports it, and on this host under Open MPI's launcher.
std::optional<int> launched_size();
std::optional<int> launched_local_size();
// The launcher of this process, for messages: "Open MPI's mpirun".
std::string launcher_name();
// True if srun started this process as one of multiple tasks without PMIx.
bool started_by_slurm_without_pmix();

}  // namespace tutti::mpi
