#pragma once
// Calls of MPI with checked results, and waits that sleep.

#include "tutti/comm/world.hpp"

#include "../backoff.hpp"

#include <mpi.h>

#include <chrono>
#include <source_location>

namespace tutti::mpi {

// Throws an mpi error unless `status` is MPI_SUCCESS.
void check(int status, std::source_location where = std::source_location::current());

// Returns when the request is complete.
void wait_for(MPI_Request& request, std::chrono::microseconds longest_sleep,
              std::source_location where = std::source_location::current());

// A duplicate of the world's MPI communicator, for the caller's own messages. It is never freed, since that would be
// collective and destructors must not communicate; MPI_Finalize releases it. Throws for a world without MPI.
// Collective.
MPI_Comm duplicate_communicator(World& world);

}  // namespace tutti::mpi
