// Faults that are planted in kernels are found: races between blocks, by wrong results in some order of blocks or by
// the thread sanitizer, and misaligned vectors, which are illegal instructions (CMakeLists.txt).

#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/format.hpp"
#include "backend/device_values.hpp"
#include "kernel.cuh"
#include "standin/control.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <numeric>

// Null except under the thread sanitizer.
extern "C" [[gnu::weak]] void __tsan_acquire(void*);

namespace {
std::atomic<bool> expects_races = false;
std::atomic<int> races = 0;
}  // namespace

// The thread sanitizer asks this whether to suppress a report.
namespace __tsan {
struct ReportDesc;
bool OnReport(const ReportDesc*, bool suppressed);
bool OnReport(const ReportDesc*, bool suppressed) {
  ++races;
  return suppressed || expects_races;
}
}  // namespace __tsan

namespace tutti::standin {
namespace {

enum class Fault { none, no_fence_before, no_fence_after, no_atomic, no_barrier, no_reset, no_wait };

struct Work {
  const float* values;
  float* of_blocks;
  unsigned* blocks_done;
  float* sum;
};

// A sum over blocks as the kernels compute it: the last block adds up what all others have written.
template <Fault kFault>
__global__ void add_up(Work work) {
  __shared__ bool is_last;
  __shared__ float of_block;
  if (threadIdx.x == 0) {
    of_block = work.values[blockIdx.x];
    work.of_blocks[blockIdx.x] = of_block;
    if (kFault != Fault::no_fence_before) __threadfence();
    const unsigned before = kFault == Fault::no_atomic ? (*work.blocks_done)++ : atomicAdd(work.blocks_done, 1U);
    is_last = kFault == Fault::no_wait ? blockIdx.x == 0 : before + 1 == gridDim.x;
    if (kFault != Fault::no_fence_after) __threadfence();
  }
  if (kFault != Fault::no_barrier) __syncthreads();
  if (!is_last || threadIdx.x != 1) return;
  float sum = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) sum += work.of_blocks[block];
  *work.sum = sum;
  if (kFault != Fault::no_reset && kFault != Fault::no_wait) *work.blocks_done = 0;
}

struct Found {
  int wrong = 0;  // of 40 launches, each in its own order
  bool reported = false;
};

template <Fault kFault>
Found found_in() {
  // The sanitizer reports an address once.
  static std::array<float, 9> of_blocks;
  static unsigned blocks_done;
  Found found;
  races = 0;
  expects_races = kFault != Fault::none;
  set_host_threads(3);
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    set_order(seed);
    std::array<float, of_blocks.size()> values{};
    std::iota(values.begin(), values.end(), static_cast<float>(seed * 1000));
    float sum = 0;
    cuda::launch(add_up<kFault>, {.blocks = std::ssize(values), .threads = 2}, stream,
                 Work{values.data(), of_blocks.data(), &blocks_done, &sum});
    cuda::check(cudaStreamSynchronize(stream));
    found.wrong += sum == std::accumulate(values.begin(), values.end(), 0.0F) ? 0 : 1;
  }
  cuda::check(cudaStreamDestroy(stream));
  set_host_threads(1);
  expects_races = false;
  found.reported = races > 0;
  return found;
}

const bool is_watched = __tsan_acquire != nullptr;

TEST(BlocksOfAKernel, AddUpInTheLastOneWithoutFault) {
  const Found found = found_in<Fault::none>();
  EXPECT_EQ(found.wrong, 0);
  EXPECT_FALSE(found.reported);
}

// Processors of the host execute the stores of a thread in order, so that only the sanitizer misses a fence.
TEST(BlocksOfAKernel, AreFoundRacingByTheThreadSanitizer) {
  EXPECT_EQ(found_in<Fault::no_fence_before>().reported, is_watched);
  EXPECT_EQ(found_in<Fault::no_fence_after>().reported, is_watched);
  EXPECT_EQ(found_in<Fault::no_atomic>().reported, is_watched);
  EXPECT_EQ(found_in<Fault::no_barrier>().reported, is_watched);
  EXPECT_EQ(found_in<Fault::no_wait>().reported, is_watched);
}

TEST(BlocksOfAKernel, AreFoundRacingByWrongResults) {
  EXPECT_GT(found_in<Fault::no_barrier>().wrong, 0);
  EXPECT_GT(found_in<Fault::no_reset>().wrong, 0);
  EXPECT_GT(found_in<Fault::no_wait>().wrong, 0);
}

__global__ void copy_four(const float* from, float4* to) { *to = *reinterpret_cast<const float4*>(from); }

TEST(Vectors, OfFourFloatsAreFoundMisaligned) {
  alignas(16) std::array<float, 8> from{};
  float4 to{};
  const auto copy = [&](int first) {
    cuda::launch(copy_four, {.threads = 1}, nullptr, from.data() + first, &to);
    cuda::check(cudaStreamSynchronize(nullptr));
  };
  copy(0);
  EXPECT_DEATH(copy(1), "");
}

// In a kernel of the library.
TEST(Vectors, OfEightBf16ValuesAreFoundMisaligned) {
  testing_support::Device device(tutti_cuda_library().make_backend({.precision = Precision::bf16}));
  const ActivationSpec input = cuda::activation_of({2, 8, 4, 4}, ElementType::bf16);
  const auto layer = device.backend().make_layer(GlobalAveragePoolSpec{}, {.input = input});
  const Buffer memory = device.backend().allocate(input.bytes + 16);
  const Buffer output = device.backend().allocate(layer->output().bytes);
  const auto forward = [&](std::size_t offset) {
    layer->forward(device.stream(),
                   {.input = static_cast<std::byte*>(memory.data()) + offset, .output = output.data()});
    device.stream().synchronize();
  };
  forward(16);
  EXPECT_DEATH(forward(2), "");
}

}  // namespace
}  // namespace tutti::standin
