#pragma once
// Runs kernels on the host: blocks in turn, or side by side on several threads of the host; the threads of a block one
// after another until each blocks at a barrier or a shuffle; and both in an order that differs from launch to launch. A
// thread gets its own stack only when one before it blocks, so that kernels without barriers cost little more than
// loops. One kernel at a time per process.

#include <vector_types.h>

#include <atomic>
#include <cstdint>
#include <source_location>

// The CUDA keywords and built-ins of kernels.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;

namespace tutti::standin {

struct KernelCall {
  dim3 blocks;
  unsigned threads = 0;
  void (*body)(const void* arguments) = nullptr;  // one thread
  const void* arguments = nullptr;
  unsigned host_threads = 1;
};

// Throws a Finding on a deadlock of a block's threads. `seed` chooses the order.
void run_kernel(const KernelCall& call, std::uint64_t seed);

// For the calling thread of a kernel.
std::memory_order begin_atomic(void* address);  // the order of an atomic operation there
void fence();
void wait_at_barrier(const std::source_location& where);
// Gives the word that the warp's lane `lane ^ mask`, or `lane + mask`, brings; beyond the warp: the own one.
enum class Partner { exclusive_or, sum };
std::uint64_t exchange_words(std::uint64_t word, Partner partner, unsigned mask, const std::source_location& where);
// Bit i: whether lane i brings true.
std::uint32_t exchange_votes(bool vote, const std::source_location& where);

}  // namespace tutti::standin
