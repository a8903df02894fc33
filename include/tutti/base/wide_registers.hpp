#pragma once
// Whether this processor has what loops compiled for AVX-512 ask of it: its parts F, BW, DQ and VL, as every processor
// with AVX-512 but the Xeon Phi has. For loops outside the CPU backend, which asks its library.

namespace tutti {

inline bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return has;
}

}  // namespace tutti
