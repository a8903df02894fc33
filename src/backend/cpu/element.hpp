#pragma once
// The storage types of activations, and conversions of single values. Kernels convert vectors with the same rounding.

#include "tutti/base/bf16.hpp"

namespace tutti::cpu {

inline constexpr int kBlockChannels = 16;  // of a blocked layout

using tutti::Bf16;
using tutti::to_float;

[[gnu::always_inline]] inline float to_float(float value) { return value; }

inline void set(float& to, float value) { to = value; }
inline void set(Bf16& to, float value) { to = to_bf16(value); }

}  // namespace tutti::cpu
