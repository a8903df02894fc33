#include "mpi_calls.hpp"

#include "tutti/base/error.hpp"
#include "tutti/comm/launcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace tutti::mpi {

void check(int status, std::source_location where) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (MPI_Error_string(status, text.data(), &length) != MPI_SUCCESS) {
    throw Error(ErrorSource::mpi, fmt::format("error {}", status), where);
  }
  throw Error(ErrorSource::mpi, text.data(), where);
}

void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep, std::source_location where) {
  Backoff backoff(longest_sleep);
  for (;;) {
    int done = 0;
    check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), where);
    if (done != 0) return;
    backoff.wait();
  }
}

}  // namespace tutti::mpi

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

std::optional<int> mpi::launched_size() {
  return first_number({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
}

// The innermost launcher comes first, since launchers do not unset the variables of outer ones.
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

std::string mpi_library_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  mpi::check(MPI_Get_library_version(text.data(), &length));
  // "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.0.2\nMPICH Release date: ...".
  std::string name(text.data(), static_cast<std::size_t>(length));
  name.resize(std::min(name.find_first_of(",\n"), name.size()));
  for (const auto& [from, to] : {std::pair{" v", " "}, std::pair{" Version:\t", " "}}) {
    const std::string_view marker(from);
    if (const auto at = name.find(marker); at != std::string::npos) name.replace(at, marker.size(), to);
  }
  return name;
}

}  // namespace tutti
