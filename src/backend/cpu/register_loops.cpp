#include "backend/cpu/register_loops.hpp"

#include "backend/cpu/library.hpp"

#include <immintrin.h>

namespace tutti::cpu {
namespace {

constexpr int kSums = 12;

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512bf16")
namespace bf16 {
using Register = __m512;
inline Register next(Register sum) {
  const __m512bh ones = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3f80));
  return _mm512_dpbf16_ps(sum, ones, ones);
}
#include "backend/cpu/register_loop.inc"
}  // namespace bf16
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx512f")
namespace avx512 {
using Register = __m512;
inline Register next(Register sum) { return _mm512_fmadd_ps(sum, _mm512_set1_ps(0.5f), _mm512_set1_ps(1.0f)); }
#include "backend/cpu/register_loop.inc"
}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,fma")
namespace avx2 {
using Register = __m256;
inline Register next(Register sum) { return _mm256_fmadd_ps(sum, _mm256_set1_ps(0.5f), _mm256_set1_ps(1.0f)); }
#include "backend/cpu/register_loop.inc"
}  // namespace avx2
#pragma GCC pop_options

namespace generic {
using Register = __m128;
inline Register next(Register sum) { return _mm_add_ps(_mm_mul_ps(sum, _mm_set1_ps(0.5f)), _mm_set1_ps(1.0f)); }
#include "backend/cpu/register_loop.inc"
}  // namespace generic

}  // namespace

RegisterLoop f32_register_loop() { return for_this_processor(avx512::kLoop, avx2::kLoop, generic::kLoop); }

// Each word takes two products.
RegisterLoop bf16_register_loop() {
  if (!compiles_for(dnnl::cpu_isa::avx512_core_bf16)) return {};
  return {bf16::kLoop.run, 2 * bf16::kLoop.operations};
}

}  // namespace tutti::cpu
