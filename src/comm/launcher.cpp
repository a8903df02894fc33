#include "tutti/comm/launcher.hpp"

#include "tutti/base/text.hpp"

#include <cstdlib>
#include <initializer_list>

namespace tutti {
namespace {

std::optional<int> number_in_environment(const char* name) {
  const char* const found = std::getenv(name);
  if (found == nullptr) return std::nullopt;
  const auto number = parse_number<int>(found);
  return number && *number >= 0 ? number : std::nullopt;
}

// List the most specific variable first: mpirun inside a Slurm step does not unset the step's variables.
std::optional<int> first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto number = number_in_environment(name)) return number;
  }
  return std::nullopt;
}

}  // namespace

bool started_by_launcher() {
  if (first_number({"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})) return true;
  // Slurm also sets SLURM_PROCID for batch scripts and interactive shells, but only steps have multiple tasks. A task
  // of such a step counts as a rank, even if MPI then fails to start: that is better than many independent trainings.
  return number_in_environment("SLURM_STEP_NUM_TASKS").value_or(1) > 1;
}

int launcher_rank() {
  return first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}).value_or(0);
}

std::optional<int> launched_size() {
  return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
}

// The innermost launcher comes first, since launchers do not unset the variables of outer ones.
std::string launcher_name() {
  if (number_in_environment("OMPI_COMM_WORLD_SIZE")) return "Open MPI's mpirun";
  if (number_in_environment("MPI_LOCALNRANKS")) return "MPICH's mpiexec";
  return number_in_environment("SLURM_STEP_NUM_TASKS") ? "srun" : "the launcher";
}

std::optional<int> launched_local_size() { return number_in_environment("OMPI_COMM_WORLD_LOCAL_SIZE"); }

bool started_by_slurm_without_pmix() {
  return number_in_environment("SLURM_STEP_NUM_TASKS").value_or(1) > 1 &&
         !first_number({"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"});
}

}  // namespace tutti
