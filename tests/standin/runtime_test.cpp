// The stand-in's streams, events, memory and graphs: guaranteed results hold in every order, others fail in some.

#include "tutti/backend/cuda_library.hpp"

#include "kernel.cuh"
#include "standin/control.hpp"
#include "standin/finding.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

namespace tutti::standin {
namespace {

using cuda::check;
using cuda::launch;

__global__ void add_to_all(float* values, float more) { values[blockIdx.x * blockDim.x + threadIdx.x] += more; }
struct Padded {
  float* values;
  float factor;
};
__global__ void scale_all(Padded given) { given.values[blockIdx.x * blockDim.x + threadIdx.x] *= given.factor; }
__global__ void double_all(float* values) { values[blockIdx.x * blockDim.x + threadIdx.x] *= 2; }

constexpr int kThreads = 64;
constexpr std::size_t kBytes = kThreads * sizeof(float);

class Runtime : public testing::Test {
 protected:
  Runtime() {
    for (cudaStream_t* stream : {&first_, &second_}) check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    void* memory = nullptr;
    check(cudaMalloc(&memory, kBytes));
    device_ = static_cast<float*>(memory);
    check(cudaHostAlloc(&memory, kBytes, cudaHostAllocPortable));
    pinned_ = static_cast<float*>(memory);
  }
  ~Runtime() override {
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(first_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(second_), cudaSuccess);
    EXPECT_EQ(allocations(), 0U);
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }

  void zero() {
    check(cudaMemset(device_, 0, kBytes));
    check(cudaDeviceSynchronize());
  }
  float value() {
    float read = -1;
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(&read, device_ + kThreads - 1, sizeof read, cudaMemcpyDeviceToHost));
    return read;
  }
  void enqueue_add(cudaStream_t stream, float more) {
    launch(add_to_all, {.threads = kThreads}, stream, device_, more);
  }
  void enqueue_double(cudaStream_t stream) { launch(double_all, {.threads = kThreads}, stream, device_); }

  // The number of 200 orders in which the steps leave `expected`.
  int orders_that_give(float expected, const std::function<void()>& steps) {
    int count = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      set_order(seed);
      zero();
      steps();
      count += value() == expected ? 1 : 0;
    }
    return count;
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  float* device_ = nullptr;
  float* pinned_ = nullptr;
};

TEST_F(Runtime, KeepsTheOrderOfAStream) {
  EXPECT_EQ(orders_that_give(10,
                             [&] {
                               enqueue_add(first_, 5);
                               enqueue_double(first_);
                             }),
            200);
}

TEST_F(Runtime, KeepsTheOrderOfStreamsOnlyByEvents) {
  const auto steps = [&] {
    enqueue_add(first_, 5);
    check(cudaEventRecord(event_, first_));
    check(cudaStreamWaitEvent(second_, event_, 0));
    enqueue_double(second_);
  };
  EXPECT_EQ(orders_that_give(10, steps), 200);
  const auto steps_without_the_wait = [&] {
    ignore_wait(1);
    steps();
  };
  const int lucky = orders_that_give(10, steps_without_the_wait);
  EXPECT_GT(lucky, 20);
  EXPECT_LT(lucky, 180);
}

TEST_F(Runtime, WaitsForAnEventAsItWasRecordedLast) {
  const auto steps = [&] {
    check(cudaEventRecord(event_, first_));
    enqueue_add(first_, 5);
    check(cudaStreamWaitEvent(second_, event_, 0));  // for nothing
    check(cudaEventRecord(event_, first_));          // too late
    enqueue_double(second_);
  };
  const int lucky = orders_that_give(10, steps);
  EXPECT_GT(lucky, 20);
  EXPECT_LT(lucky, 180);
}

TEST_F(Runtime, TreatsAnUnrecordedEventAsReached) {
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  check(cudaStreamWaitEvent(first_, event_, 0));
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
}

TEST_F(Runtime, AnswersQueriesUntilTheWorkIsDone) {
  set_order(0);
  int refusals = 0;
  for (int i = 0; i < 50; ++i) enqueue_add(first_, 1);
  check(cudaEventRecord(event_, first_));
  while (cudaEventQuery(event_) == cudaErrorNotReady) ++refusals;
  EXPECT_GT(refusals, 0);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
}

TEST_F(Runtime, ReadsPinnedMemoryLateAndPageableMemoryAtOnce) {
  std::vector<float> pageable(kThreads);
  const auto reuse_at_once = [&](float* host) {
    return orders_that_give(7, [this, host] {
      std::fill_n(host, kThreads, 7.0F);
      check(cudaMemcpyAsync(device_, host, kBytes, cudaMemcpyHostToDevice, first_));
      std::fill_n(host, kThreads, 8.0F);
    });
  };
  EXPECT_EQ(reuse_at_once(pageable.data()), 200);
  const int lucky = reuse_at_once(pinned_);
  EXPECT_GT(lucky, 10);
  EXPECT_LT(lucky, 150);
}

TEST_F(Runtime, WritesPinnedMemoryLateAndPageableMemoryAtOnce) {
  std::vector<float> pageable(kThreads);
  const auto reads_at_once = [&](float* host) {
    int right = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      set_order(seed);
      zero();
      *host = -1;
      check(cudaMemcpyAsync(host, device_, kBytes, cudaMemcpyDefault, first_));
      right += *host == 0 ? 1 : 0;
      check(cudaStreamSynchronize(first_));
      EXPECT_EQ(*host, 0);
    }
    return right;
  };
  EXPECT_EQ(reads_at_once(pageable.data()), 200);
  EXPECT_LT(reads_at_once(pinned_), 150);
}

TEST_F(Runtime, FillsNewMemoryWithNan) {
  EXPECT_TRUE(std::isnan(value()));
  EXPECT_TRUE(std::isnan(pinned_[0]));
}

TEST_F(Runtime, RefusesCopiesBeyondMemoryAndInTheWrongDirection) {
  EXPECT_EQ(cudaMemcpyAsync(device_ + 1, pinned_, kBytes, cudaMemcpyDefault, first_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyDeviceToHost, first_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(device_, 0, kBytes + 1, first_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(device_ + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
}

TEST_F(Runtime, RefusesMoreMemoryThanThereIs) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, std::size_t{1} << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
}

TEST_F(Runtime, FindsWritesOutsideOfMemory) {
  const auto write_outside = []() noexcept {
    void* memory = nullptr;
    check(cudaMalloc(&memory, 4));
    check(enqueue(nullptr, [memory] { static_cast<char*>(memory)[4] = 0; }));
    check(cudaFree(memory));
  };
  EXPECT_DEATH(write_outside(), "wrote outside of 4 bytes|AddressSanitizer");
}

TEST_F(Runtime, SeparatesMemoryOfHostAndDeviceWhenAsked) {
  separate_memory(true);
  zero();
  enqueue_add(first_, 2);
  EXPECT_EQ(value(), 2);
  EXPECT_DEATH(device_[0] = 1, "");
  std::vector<float> pageable(kThreads + 1);
  // Words whose lowest byte is that of a bool are not taken for addresses.
  float* const memory = pageable.data() + (reinterpret_cast<std::uintptr_t>(pageable.data()) % 256 == 0 ? 1 : 0);
  EXPECT_THROW(launch(double_all, {.threads = kThreads}, first_, memory), Finding);
  launch(double_all, {.threads = kThreads}, first_, pinned_);
  separate_memory(false);
}

// Padding has old values of that memory: here addresses, in any memory that the launch may use.
TEST_F(Runtime, DoesNotTreatPaddingAsAnAddress) {
  separate_memory(true);
  const std::vector<float> host(kThreads);
  const auto address = reinterpret_cast<std::uintptr_t>(host.data()) + sizeof(float);
  Padded given{device_, 0};
  std::memcpy(&given.factor, &address, sizeof given.factor);
  for (std::size_t words = 1; words < 32; ++words) {
    std::vector<std::vector<std::uintptr_t>> left(4, std::vector<std::uintptr_t>(words, address));
  }
  launch(scale_all, {.threads = kThreads}, first_, given);
  separate_memory(false);
}

TEST_F(Runtime, FindsCopiesFromFreedMemory) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, kBytes));
  check(cudaStreamBeginCapture(first_, cudaStreamCaptureModeThreadLocal));
  check(cudaMemcpyAsync(device_, memory, kBytes, cudaMemcpyDefault, first_));
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(first_, &graph));
  cudaGraphExec_t executable = nullptr;
  check(cudaGraphInstantiate(&executable, graph, 0));
  check(cudaGraphDestroy(graph));
  check(cudaFree(memory));
  const auto launch_graph = [&] {
    check(cudaGraphLaunch(executable, first_));
    check(cudaStreamSynchronize(first_));
  };
  EXPECT_THROW(launch_graph(), Finding);
  check(cudaGraphExecDestroy(executable));
}

TEST_F(Runtime, FindsCallsWithDestroyedHandles) {
  cudaStream_t destroyed = nullptr;
  check(cudaStreamCreateWithFlags(&destroyed, cudaStreamNonBlocking));
  check(cudaStreamDestroy(destroyed));
  EXPECT_THROW(static_cast<void>(cudaStreamQuery(destroyed)), Finding);
}

TEST_F(Runtime, ExecutesTheWorkOfADestroyedStream) {
  zero();
  cudaStream_t brief = nullptr;
  check(cudaStreamCreateWithFlags(&brief, cudaStreamNonBlocking));
  enqueue_add(brief, 3);
  check(cudaStreamDestroy(brief));
  EXPECT_EQ(value(), 3);
}

TEST_F(Runtime, DelaysWorkThatWaitsForOthers) {
  zero();
  int queries = 0;
  check(enqueue(
      first_, [this] { device_[kThreads - 1] = 1; }, [&queries] { return ++queries > 5; }));
  check(cudaStreamSynchronize(first_));
  EXPECT_EQ(queries, 6);
  EXPECT_EQ(value(), 1);
}

TEST(Devices, AreAsManyAsTheEnvironmentShows) {
  ::setenv("TUTTI_STANDIN_DEVICES", "4", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "3,1,7,2", 1);
  int count = 0;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  cudaDeviceProp third{};
  EXPECT_EQ(cudaGetDeviceProperties(&third, 0), cudaSuccess);
  ::unsetenv("CUDA_VISIBLE_DEVICES");
  cudaDeviceProp also_third{};
  EXPECT_EQ(cudaGetDeviceProperties(&also_third, 3), cudaSuccess);
  EXPECT_EQ(std::memcmp(&third.uuid, &also_third.uuid, sizeof third.uuid), 0);
  EXPECT_EQ(cudaSetDevice(4), cudaErrorInvalidDevice);
  EXPECT_EQ(tutti_cuda_library().query().devices.at(3).pci_bus_id, "0000:a3:00.0") << "as in /sys/bus/pci/devices";

  ::setenv("TUTTI_STANDIN_DEVICES", "0", 1);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  ::unsetenv("TUTTI_STANDIN_DEVICES");
  static_cast<void>(cudaGetLastError());
}

}  // namespace
}  // namespace tutti::standin
