#pragma once
// How the calling thread treats denormal numbers of floating point.

#include <cstdint>
#include <span>

namespace tutti {

// Bits of the processor's control register; 0 keeps denormal numbers.
std::uint64_t denormal_mode();
void set_denormal_mode(std::uint64_t mode);

// The other modes. With the last one, results that are denormal become zeros, and such operands count as zeros.
std::span<const std::uint64_t> flushing_modes();

}  // namespace tutti
