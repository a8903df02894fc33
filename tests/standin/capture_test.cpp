// Stream capture and graphs on the stand-in, and the calls that fail during a capture.

#include "tutti/backend/cuda_stream.hpp"

#include "kernel.cuh"
#include "standin/control.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <thread>

namespace tutti::standin {
namespace {

using cuda::check;
using cuda::launch;

__global__ void add_to(float* value, float more) { *value += more; }
__global__ void multiply(float* value, float factor) { *value *= factor; }
__global__ void add_other(float* value, const float* other) { *value += *other; }

class Capture : public testing::Test {
 protected:
  Capture() {
    for (cudaStream_t* stream : {&first_, &second_}) check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
    for (cudaEvent_t* event : {&fork_, &join_}) check(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    void* memory = nullptr;
    check(cudaMalloc(&memory, 2 * sizeof(float)));
    values_ = static_cast<float*>(memory);
  }
  ~Capture() override {
    EXPECT_EQ(cudaFree(values_), cudaSuccess);
    for (const cudaEvent_t event : {fork_, join_}) EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
    for (const cudaStream_t stream : {first_, second_}) EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    static_cast<void>(cudaGetLastError());
  }

  void begin() { check(cudaStreamBeginCapture(first_, cudaStreamCaptureModeThreadLocal)); }
  cudaError_t end() {
    cudaGraph_t graph = nullptr;
    const cudaError_t status = cudaStreamEndCapture(first_, &graph);
    EXPECT_EQ(graph != nullptr, status == cudaSuccess);
    if (graph != nullptr) check(cudaGraphDestroy(graph));
    return status;
  }
  cudaGraphExec_t record(const std::function<void()>& enqueue) {
    begin();
    enqueue();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(first_, &graph));
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0));
    check(cudaGraphDestroy(graph));
    return executable;
  }
  // Two branches, each with its own value, that join.
  void enqueue_branches() {
    check(cudaEventRecord(fork_, first_));
    check(cudaStreamWaitEvent(second_, fork_, 0));
    launch(add_to, {.threads = 1}, first_, values_, 1.0F);
    launch(add_to, {.threads = 1}, second_, values_ + 1, 10.0F);
    check(cudaEventRecord(join_, second_));
    check(cudaStreamWaitEvent(first_, join_, 0));
    launch(add_other, {.threads = 1}, first_, values_, values_ + 1);
  }

  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t fork_ = nullptr;
  cudaEvent_t join_ = nullptr;
  float* values_ = nullptr;
};

TEST_F(Capture, RecordsWorkThatLaunchesDoInOrder) {
  const cudaGraphExec_t graph = record([&] { enqueue_branches(); });
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    set_order(seed);
    check(cudaMemset(values_, 0, 2 * sizeof(float)));
    check(cudaDeviceSynchronize());
    launch(add_to, {.threads = 1}, first_, values_, 5.0F);
    check(cudaGraphLaunch(graph, first_));
    check(cudaGraphLaunch(graph, second_));  // ordered after the first launch, on any stream
    launch(multiply, {.threads = 1}, second_, values_, 2.0F);
    check(cudaDeviceSynchronize());
    EXPECT_EQ(values_[0], ((5.0F + 1 + 10) + 1 + 20) * 2) << seed;
  }
  check(cudaGraphExecDestroy(graph));
}

TEST_F(Capture, ExecutesNothing) {
  check(cudaMemset(values_, 0, 2 * sizeof(float)));
  check(cudaDeviceSynchronize());
  check(cudaGraphExecDestroy(record([&] { enqueue_branches(); })));
  check(cudaDeviceSynchronize());
  EXPECT_EQ(values_[0], 0);
}

TEST_F(Capture, RefusesQueriesOfACapturedStream) {
  const std::function<cudaError_t()> looks[] = {
      [&] { return cudaStreamQuery(first_); },
      [&] { return cudaStreamSynchronize(first_); },
      [&] { return cudaStreamQuery(second_); },
      [&] { return cudaEventQuery(fork_); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMemset(values_, 0, 4); },
      [&] {
        void* memory = nullptr;
        return cudaMalloc(&memory, 4);
      },
  };
  for (const auto& look : looks) {
    begin();
    EXPECT_EQ(look(), cudaErrorStreamCaptureUnsupported);
    EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  }
  begin();
  check(cudaEventRecord(fork_, first_));
  EXPECT_EQ(cudaEventQuery(fork_), cudaErrorCapturedEvent);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
}

TEST_F(Capture, LetsOtherThreadsAllocateButNotWaitForTheDevice) {
  begin();
  std::thread([&] {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, 4), cudaSuccess);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
    EXPECT_NO_THROW(static_cast<void>(allocate_cuda(0, 4)));
  }).join();
  EXPECT_EQ(end(), cudaSuccess);
  begin();
  std::thread([&] { EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported); }).join();
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Capture, RefusesToWaitForUncapturedWork) {
  launch(add_to, {.threads = 1}, second_, values_, 1.0F);
  check(cudaEventRecord(fork_, second_));
  begin();
  EXPECT_EQ(cudaStreamWaitEvent(first_, fork_, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(end(), cudaErrorStreamCaptureInvalidated);
}

TEST_F(Capture, RefusesBranchesThatDoNotJoin) {
  begin();
  check(cudaEventRecord(fork_, first_));
  check(cudaStreamWaitEvent(second_, fork_, 0));
  launch(add_to, {.threads = 1}, second_, values_, 1.0F);
  EXPECT_EQ(end(), cudaErrorStreamCaptureUnjoined);
}

}  // namespace
}  // namespace tutti::standin
