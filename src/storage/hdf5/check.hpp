#pragma once
// The one way to look at what HDF5 returns: a failure becomes an Error that carries HDF5's innermost
// explanation.

#include <hdf5.h>

#include <mutex>
#include <source_location>

namespace tutti::hdf5 {

// Identifiers and sizes; negative means failure.
hid_t check(hid_t result, std::source_location where = std::source_location::current());
// Statuses and three-valued answers; negative means failure.
herr_t check(herr_t result, std::source_location where = std::source_location::current());

// Keeps HDF5 from printing its own error traces in the calling thread: check() tells the story instead.
void silence_traces();

// HDF5 may be built without thread safety, so one thread at a time calls it. A thread may take turns within its turn.
[[nodiscard]] std::unique_lock<std::recursive_mutex> take_turn();

}  // namespace tutti::hdf5
