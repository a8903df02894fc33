// Kernels on the host: their results, and the errors that the stand-in finds.

#include "kernel.cuh"
#include "standin/control.hpp"
#include "standin/finding.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace tutti::standin {
namespace {

using cuda::Grid;
using cuda::launch;

// Memory of the "device" is the host's, so tests hand kernels vectors.
cudaStream_t stream() {
  static const cudaStream_t made = [] {
    cudaStream_t created = nullptr;
    cuda::check(cudaStreamCreateWithFlags(&created, cudaStreamNonBlocking));
    return created;
  }();
  return made;
}
void synchronize() { cuda::check(cudaStreamSynchronize(stream())); }

__global__ void number_threads(std::int64_t* to, std::int64_t count) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) to[i] += i;
}

TEST(Kernel, RunsEveryThreadOfEveryBlockOnce) {
  for (const int threads : {1, 31, 32, 33, 256, 1024}) {
    std::vector<std::int64_t> seen(5000, 0);
    const std::int64_t blocks = 2500 / threads + 1;
    launch(number_threads, {.blocks = blocks, .blocks_y = 2, .threads = threads}, stream(), seen.data(), 5000);
    synchronize();
    for (std::size_t i = 0; i < seen.size(); ++i) ASSERT_EQ(seen[i], static_cast<std::int64_t>(i)) << threads;
  }
}

TEST(Kernel, WithoutBlocksDoesNothing) {
  launch(number_threads, {.blocks = 0}, stream(), nullptr, 1);
  synchronize();
}

TEST(Kernel, IsRefusedWithAnInvalidGrid) {
  for (const Grid& grid : {Grid{.threads = 1025}, Grid{.blocks_y = 65536}, Grid{.blocks = std::int64_t{1} << 31}}) {
    EXPECT_ANY_THROW(launch(number_threads, grid, stream(), nullptr, 0));
  }
}

// The sum of a block's values: within warps, then over warps.
template <class T>
__global__ __launch_bounds__(1024) void sum_blocks(const T* values, T* sums) {
  __shared__ T of_warps[32];
  T sum = values[static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x];
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, lanes);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  sum = threadIdx.x < blockDim.x / 32 ? of_warps[threadIdx.x] : T{0};
  for (unsigned lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(0xffffffffU, sum, lanes);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

template <class T>
class Sums : public testing::Test {};
using Summed = testing::Types<int, float, double, std::int64_t>;
TYPED_TEST_SUITE(Sums, Summed);

TYPED_TEST(Sums, OfBlocksGoThroughShufflesAndBarriers) {
  for (const int threads : {32, 96, 512, 1024}) {
    std::vector<TypeParam> values(static_cast<std::size_t>(threads) * 3);
    std::iota(values.begin(), values.end(), TypeParam{1});
    std::vector<TypeParam> sums(3, TypeParam{-1});
    launch(sum_blocks<TypeParam>, {.blocks = 3, .threads = threads}, stream(), values.data(), sums.data());
    synchronize();
    for (std::size_t block = 0; block < 3; ++block) {
      const auto* const first = values.data() + block * static_cast<std::size_t>(threads);
      EXPECT_EQ(sums[block], std::accumulate(first, first + threads, TypeParam{0})) << threads << " " << block;
    }
  }
}

__global__ void vote(unsigned* votes) {
  const unsigned even = __ballot_sync(0xffffffffU, threadIdx.x % 2 == 0);
  if (threadIdx.x % 32 == 0) atomicAdd(votes, even);
}

TEST(Kernel, VotesWithinWarpsAndAddsAtomically) {
  unsigned votes = 0;
  launch(vote, {.threads = 64}, stream(), &votes);
  synchronize();
  EXPECT_EQ(votes, 2 * 0x55555555U);
}

__global__ void reverse(int* values, bool waits) {
  __shared__ int shared[64];
  shared[threadIdx.x] = values[threadIdx.x];
  if (waits) __syncthreads();
  values[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}

bool reverses_under_all_orders(bool waits) {
  bool always = true;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    set_order(seed);
    std::vector<int> values(64);
    std::iota(values.begin(), values.end(), static_cast<int>(seed) * 1000);
    const std::vector<int> expected(values.rbegin(), values.rend());
    launch(reverse, {.threads = 64}, stream(), values.data(), waits);
    synchronize();
    always = always && values == expected;
  }
  return always;
}

TEST(Kernel, RevealsAMissingBarrierInSomeOrder) {
  EXPECT_TRUE(reverses_under_all_orders(true));
  EXPECT_FALSE(reverses_under_all_orders(false));
}

__global__ void leave_early(int least) {
  if (static_cast<int>(threadIdx.x) < least) return;
  __syncthreads();
}
__global__ void shuffle_in_half_a_warp(int* to) {
  if (threadIdx.x % 32 < 16) to[threadIdx.x] = __shfl_xor_sync(0xffffffffU, 1, 1);
}
__global__ void shuffle_with_half_a_mask(int* to) { to[threadIdx.x] = __shfl_xor_sync(0xffffU, 1, 1); }
__global__ void wait_in_two_places() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

// Found when it is launched or later.
template <class... Arguments>
bool is_found_wrong(void (*kernel)(Arguments...), int threads, const Arguments&... arguments) {
  try {
    launch(kernel, {.threads = threads}, stream(), arguments...);
    synchronize();
    return false;
  } catch (const Finding&) {
    return true;
  }
}

TEST(Kernel, IsFoundWrongWhereThreadsWaitForever) {
  std::vector<int> values(64);
  EXPECT_TRUE(is_found_wrong(leave_early, 64, 1));
  EXPECT_TRUE(is_found_wrong(shuffle_in_half_a_warp, 64, values.data()));
  EXPECT_TRUE(is_found_wrong(shuffle_in_half_a_warp, 24, values.data()));
  EXPECT_TRUE(is_found_wrong(shuffle_with_half_a_mask, 64, values.data()));
  EXPECT_TRUE(is_found_wrong(wait_in_two_places, 64));
  // It leaves no state behind.
  EXPECT_TRUE(reverses_under_all_orders(true));
}

}  // namespace
}  // namespace tutti::standin
