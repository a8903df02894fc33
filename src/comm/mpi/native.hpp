#pragma once
// From a World over MPI to what the communicators need of the library.

#include "tutti/comm/world.hpp"

#include <mpi.h>

namespace tutti::mpi {

// An MPI communicator of the same ranks for the caller's own messages. It is never freed: that would be
// collective, and the owners' destructors do not communicate; MPI releases it when the world is closed.
// Throws for a world without MPI. Collective.
MPI_Comm duplicate_communicator(World& world);

// "Open MPI 4.1.4"; usable before MPI is initialised.
std::string library_name();

}  // namespace tutti::mpi
