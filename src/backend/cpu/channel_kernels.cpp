#include "backend/cpu/channel_kernels.hpp"

#include "backend/cpu/library.hpp"

#include <cstring>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kRunLength = 64;

#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")
namespace avx512 {
constexpr int kWidth = 16;
#include "backend/cpu/channel_loops.inc"
}  // namespace avx512
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
constexpr int kWidth = 8;
#include "backend/cpu/channel_loops.inc"
}  // namespace avx2
#pragma GCC pop_options

namespace generic {
constexpr int kWidth = 4;
#include "backend/cpu/channel_loops.inc"
}  // namespace generic

}  // namespace

template <class T>
const ChannelKernels<T>& channel_kernels() {
  if (compiles_for(dnnl::cpu_isa::avx512_core)) return avx512::kKernels<T>;
  if (compiles_for(dnnl::cpu_isa::avx2)) return avx2::kKernels<T>;
  return generic::kKernels<T>;
}

template const ChannelKernels<float>& channel_kernels();
template const ChannelKernels<Bf16>& channel_kernels();

}  // namespace tutti::cpu
