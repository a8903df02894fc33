#include "backend/cpu/channel_kernels.hpp"

#include "backend/cpu/library.hpp"

#include <cstring>

namespace tutti::cpu {
namespace {

constexpr std::int64_t kRunLength = 64;

#define TUTTI_LOOPS "backend/cpu/channel_loops.inc"
#include "backend/cpu/instruction_sets.inc"
#undef TUTTI_LOOPS

}  // namespace

template <class T>
const ChannelKernels<T>& channel_kernels() {
  return for_this_processor(avx512::kKernels<T>, avx2::kKernels<T>, generic::kKernels<T>);
}

template const ChannelKernels<float>& channel_kernels();
template const ChannelKernels<Bf16>& channel_kernels();

}  // namespace tutti::cpu
