#pragma once
// What all code over MPI needs of the library.

#include "tutti/comm/world.hpp"

#include "../backoff.hpp"

#include <mpi.h>

#include <chrono>
#include <source_location>
#include <string>

namespace tutti::mpi {

// Turns a result of the library into an exception.
void check(int status, std::source_location where = std::source_location::current());

// Returns when the request is complete.
void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep,
              std::source_location where = std::source_location::current());

// An MPI communicator of the same ranks for the caller's own messages. It is never freed: that would be
// collective, and the owners' destructors do not communicate; MPI releases it when the world is closed.
// Throws for a world without MPI. Collective.
MPI_Comm duplicate_communicator(World& world);

// "Open MPI 4.1.4"; usable before MPI is initialised.
std::string library_name();

}  // namespace tutti::mpi
