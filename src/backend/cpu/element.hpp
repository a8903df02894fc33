#pragma once
// The storage types of activations, and conversions of single values. Kernels convert vectors with the same rounding.

#include <bit>
#include <cstdint>

namespace tutti::cpu {

struct Bf16 {
  std::uint16_t bits;
};

inline float to_float(float value) { return value; }
inline float to_float(Bf16 value) { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

inline void set(float& to, float value) { to = value; }
// Rounds to nearest, ties to even; NaN stays NaN.
inline void set(Bf16& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  to.bits = static_cast<std::uint16_t>(value != value ? bits >> 16 | 0x40u : rounded);
}

}  // namespace tutti::cpu
