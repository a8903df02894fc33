#include "launcher.hpp"

#include "tutti/comm/world.hpp"

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

namespace tutti {
namespace {

std::optional<int> number_in_environment(const char* name) {
  const char* const found = std::getenv(name);
  if (found == nullptr) return std::nullopt;
  const std::string_view text(found);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// The most specific comes first: mpirun inside a Slurm step leaves the step's variables in place.
std::optional<int> first_number(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (const auto number = number_in_environment(name)) return number;
  }
  return std::nullopt;
}

}  // namespace

bool started_by_launcher() {
  if (first_number({"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"})) return true;
  // A batch script and an interactive shell of Slurm have SLURM_PROCID too, but no step of several tasks. A
  // task of such a step is a rank, and if MPI cannot start there its message is better than many lone
  // trainings.
  return number_in_environment("SLURM_STEP_NUM_TASKS").value_or(1) > 1;
}

int launcher_rank() {
  return first_number({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}).value_or(0);
}

std::optional<int> mpi::launched_size() {
  return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
}

// In the order of first_number: each launcher leaves the variables of the one outside it in place.
std::string mpi::launcher_name() {
  if (number_in_environment("OMPI_COMM_WORLD_SIZE")) return "Open MPI's mpirun";
  if (number_in_environment("MPI_LOCALNRANKS")) return "MPICH's mpiexec";
  return number_in_environment("SLURM_STEP_NUM_TASKS") ? "srun" : "the launcher";
}

std::optional<int> mpi::launched_local_size() { return number_in_environment("OMPI_COMM_WORLD_LOCAL_SIZE"); }

bool mpi::started_by_slurm_without_pmix() {
  return number_in_environment("SLURM_STEP_NUM_TASKS").value_or(1) > 1 &&
         !first_number({"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS"});
}

}  // namespace tutti
