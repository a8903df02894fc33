#include "mpi_calls.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
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
