#pragma once
// What messages call this host and this program, what its processor can do, and how its signals are handled.

#include <unistd.h>

#include <string>
#include <string_view>

namespace tutti {

std::string host_name();

// "trainer": the name of the program's file, without folders.
std::string program_name();
// As it was called: "./trainer", or "tutti" where it was found by its name alone.
std::string program_call();
// Tutti's own version.
std::string_view version() noexcept;

// Whether this processor has AVX-512 F, BW, DQ and VL, as every processor with AVX-512 but the Xeon Phi has.
inline bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

// For threads whose work is not urgent: those that compute go first. On Linux it applies to the calling thread alone;
// a failure is ignored.
inline void lower_priority() { static_cast<void>(::nice(5)); }

// Whether this process was told to ignore the signal.
bool is_ignored(int signal);
// By the signal's default action, even where other threads block it.
[[noreturn]] void raise_default(int signal);

}  // namespace tutti
