#pragma once
// What launchers (mpirun, mpiexec, srun) tell a process in environment variables, readable before MPI is initialized.

#include <optional>
#include <string>

namespace tutti {

// True if a launcher started this process as one of its ranks.
bool started_by_launcher();
// The rank of this process; 0 without a launcher.
int launcher_rank();
// The number of processes in the job, if the launcher reports it, and on this host under Open MPI's launcher.
std::optional<int> launched_size();
std::optional<int> launched_local_size();
// The launcher of this process, for messages: "Open MPI's mpirun".
std::string launcher_name();
// True if srun started this process as one of multiple tasks without PMIx.
bool started_by_slurm_without_pmix();

}  // namespace tutti
