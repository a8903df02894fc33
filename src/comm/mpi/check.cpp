#include "check.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <array>

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

}  // namespace tutti::mpi
