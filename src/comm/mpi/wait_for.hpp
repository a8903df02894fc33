#pragma once
// Waiting for what the MPI library carries out.

#include "../patience.hpp"
#include "check.hpp"

#include <source_location>

namespace tutti::mpi {

// Returns when the request is complete.
void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep,
              std::source_location where = std::source_location::current());

}  // namespace tutti::mpi
