#pragma once
// A host implementation of src/backend/cuda/device/kernel.cuh: kernels compiled as C++ run under
// kernel_runner.hpp on the stand-in's streams. Known are: __global__, __device__, __shared__ (fixed size, left as a
// block before left it), __launch_bounds__; threadIdx, blockIdx (x, y), blockDim, gridDim; __syncthreads;
// __shfl_xor_sync, __shfl_down_sync, __ballot_sync with the full mask; __threadfence; atomicAdd, atomicMax on integers;
// arithmetic that rounds (__fadd_rn, __dmul_rn, ...); __umulhi, __mulhi, __popc, __clz, __ffs, bit casts; rsqrtf,
// __expf, __logf; min, max; what cuda_bf16.h offers the host, and the C++ library's mathematics. Add what is needed.

#include "backend/cuda/runtime.hpp"
#include "standin/kernel_runner.hpp"

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>
#include <vector_functions.h>

#undef __shared__
#define __shared__ TUTTI_STANDIN_SHARED
#undef __launch_bounds__
#define __launch_bounds__(...)

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

using std::max;
using std::min;

using Where = std::source_location;

inline void __syncthreads(const Where& where = Where::current()) { tutti::standin::wait_at_barrier(where); }

inline void __threadfence() { tutti::standin::fence(); }

namespace tutti::standin {

void refuse_partial_mask(unsigned mask, const Where& where);

template <class T>
T exchange(unsigned mask, T value, Partner partner, unsigned distance, const Where& where) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  refuse_partial_mask(mask, where);
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof value);
  word = exchange_words(word, partner, distance, where);
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace tutti::standin

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, const Where& where = Where::current()) {
  using tutti::standin::Partner;
  return tutti::standin::exchange(mask, value, Partner::exclusive_or, static_cast<unsigned>(lanes), where);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes, const Where& where = Where::current()) {
  return tutti::standin::exchange(mask, value, tutti::standin::Partner::sum, lanes, where);
}
inline unsigned __ballot_sync(unsigned mask, int vote, const Where& where = Where::current()) {
  tutti::standin::refuse_partial_mask(mask, where);
  return tutti::standin::exchange_votes(vote != 0, where);
}

template <class T>
T add_atomically(T* to, T value) {
  return std::atomic_ref(*to).fetch_add(value, tutti::standin::begin_atomic(to));
}
inline int atomicAdd(int* to, int value) { return add_atomically(to, value); }
inline unsigned atomicAdd(unsigned* to, unsigned value) { return add_atomically(to, value); }
inline unsigned long long atomicAdd(unsigned long long* to, unsigned long long value) {
  return add_atomically(to, value);
}
inline int atomicMax(int* to, int value) {
  const std::memory_order order = tutti::standin::begin_atomic(to);
  const std::atomic_ref word(*to);
  int before = word.load(std::memory_order_relaxed);
  while (before < value && !word.compare_exchange_weak(before, value, order, std::memory_order_relaxed)) continue;
  return before;
}

// There is no FMA contraction on the host.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

inline float rsqrtf(float a) { return 1.0F / std::sqrt(a); }
inline float __expf(float a) { return std::exp(a); }
inline float __logf(float a) { return std::log(a); }

inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(a) * b) >> 32);
}
inline int __mulhi(int a, int b) { return static_cast<int>((static_cast<std::int64_t>(a) * b) >> 32); }
inline int __popc(unsigned a) { return std::popcount(a); }
inline int __clz(int a) { return std::countl_zero(static_cast<unsigned>(a)); }
inline int __ffs(int a) { return a == 0 ? 0 : std::countr_zero(static_cast<unsigned>(a)) + 1; }
inline int __float_as_int(float a) { return std::bit_cast<int>(a); }
inline long long __double2ll_rn(double a) { return std::llrint(a); }
inline int __double2int_rn(double a) {
  return std::isnan(a) ? 0 : static_cast<int>(std::clamp(std::nearbyint(a), -0x1p31, 0x1p31 - 1));
}
inline double __longlong_as_double(long long a) { return std::bit_cast<double>(a); }

namespace tutti::standin {

struct KernelLaunch {
  std::string kind;
  std::int64_t blocks = 1;
  std::int64_t blocks_y = 1;
  int threads = 1;
  std::shared_ptr<const void> arguments;
  std::vector<std::uint64_t> words;  // of the arguments, all that may be addresses
  void (*body)(const void* arguments) = nullptr;
};

// Appends the words of one argument. What its padding holds is left out: it may look like an address, of anything.
template <class Parameter>
void append_words(Parameter argument, std::vector<std::uint64_t>& words) {
#if __has_builtin(__builtin_clear_padding)
  __builtin_clear_padding(&argument);
#endif
  for (std::size_t at = 0; at + sizeof(std::uint64_t) <= sizeof argument; at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&argument) + at, sizeof word);
    words.push_back(word);
  }
}

// The types of a kernel's parameters, without namespaces: "Pool, Runs".
std::string kind_of(const std::type_info& tuple);

// Sets the thread's last error if the launch is invalid, as CUDA does. Asynchronous.
void enqueue_kernel(const KernelLaunch& launch, cudaStream_t stream);

}  // namespace tutti::standin

namespace tutti::cuda {

struct Grid {
  std::int64_t blocks = 1;
  std::int64_t blocks_y = 1;
  int threads = 256;  // of a block
};

// Asynchronous. Does nothing for a grid without blocks.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Grid& grid, cudaStream_t stream, const Arguments&... arguments) {
  static_assert((sizeof(Parameters) + ... + 0) <= 4000, "kernels take 4 KiB of arguments");
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "arguments of kernels are copied as bytes");
  if (grid.blocks == 0 || grid.blocks_y == 0) return;
  struct Call {
    std::tuple<Parameters...> arguments;
    decltype(kernel) function;
  };
  const auto body = [](const void* given) {
    const Call& call = *static_cast<const Call*>(given);
    std::apply(call.function, call.arguments);
  };
  std::vector<std::uint64_t> words;
  (standin::append_words(static_cast<Parameters>(arguments), words), ...);
  static const std::string kind = standin::kind_of(typeid(std::tuple<Parameters...>));
  standin::enqueue_kernel(
      {.kind = kind,
       .blocks = grid.blocks,
       .blocks_y = grid.blocks_y,
       .threads = grid.threads,
       .arguments = std::make_shared<Call>(std::tuple<Parameters...>(static_cast<Parameters>(arguments)...), kernel),
       .words = std::move(words),
       .body = body},
      stream);
  check(cudaGetLastError());
}

}  // namespace tutti::cuda
