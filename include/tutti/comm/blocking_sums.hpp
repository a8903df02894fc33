#pragma once
// Sums by MPI_Allreduce in place, for measurements: the call that MPI's settings choose algorithms for, and that only
// returns once the sum is there. Nothing else may be on its way meanwhile, so no training uses it.

#include "tutti/comm/communicator.hpp"

#include <memory>

namespace tutti {

// Collective.
std::unique_ptr<Communicator> make_mpi_blocking_communicator(World& world);

}  // namespace tutti
