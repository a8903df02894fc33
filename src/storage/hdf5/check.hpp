#pragma once
// The one way to look at what HDF5 returns: a failure becomes an Error that carries HDF5's innermost
// explanation.

#include <hdf5.h>

#include <source_location>

namespace tutti::hdf5 {

// Identifiers and sizes; negative means failure.
hid_t check(hid_t result, std::source_location where = std::source_location::current());
// Statuses and three-valued answers; negative means failure.
herr_t check(herr_t result, std::source_location where = std::source_location::current());

// Keeps HDF5 from printing its own error traces in the calling thread: check() tells the story instead.
void silence_traces();

}  // namespace tutti::hdf5
