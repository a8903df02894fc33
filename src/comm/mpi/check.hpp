#pragma once
// Turns results of the MPI library into exceptions.

#include <mpi.h>

#include <source_location>

namespace tutti::mpi {

void check(int status, std::source_location where = std::source_location::current());

}  // namespace tutti::mpi
