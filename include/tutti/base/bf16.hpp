#pragma once
// The number format bf16, the upper half of an f32.

#include <bit>
#include <cstdint>

namespace tutti {

struct Bf16 {
  std::uint16_t bits;
};

// Always inlined, without the library's std::bit_cast: files for one instruction set include this, and the linker could
// choose their copy of a function for other processors.
[[gnu::always_inline]] inline float to_float(Bf16 value) {
  return __builtin_bit_cast(float, std::uint32_t{value.bits} << 16);
}

// Rounds to nearest, ties to even; NaN stays NaN.
inline Bf16 to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  return {static_cast<std::uint16_t>(value != value ? bits >> 16 | 0x40u : rounded)};
}

}  // namespace tutti
