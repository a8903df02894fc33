#pragma once
// The names of this host and program for messages, its cores, its writes, and the handling of its signals.

#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

std::string host_name();

// "trainer": the name of the program's file, without folders.
std::string program_name();
// argv[0] as typed: "./trainer", or "tutti" if it was found in PATH.
std::string program_call();
// Tutti's own version.
std::string_view version() noexcept;

// The cores on which this process may run, ascending; empty if that is unknown.
std::vector<int> allowed_cores();

// Calls write() until all bytes are written or an error occurs, and waits for the reader of a pipe or terminal that
// does not block. Returns the unwritten rest; errno holds the error.
std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes);

// Lets threads that compute run before this one. On Linux it applies to the calling thread alone; a failure is ignored.
inline void lower_priority() { static_cast<void>(::nice(5)); }

// Whether this process ignores the signal.
bool is_ignored(int signal);
// Ends the process by the signal's default action, even if other threads block the signal.
[[noreturn]] void raise_default(int signal);

}  // namespace tutti
