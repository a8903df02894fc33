#include "standin/runtime.hpp"

#include "standin/control.hpp"
#include "standin/finding.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>

namespace tutti::standin {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

int calls_under_way = 0;  // of the thread that holds the lock, one within the other

void spoil(Capture& capture) { capture.valid = false; }

void protect_device_memory(int protection) {
  for (const auto& [place, allocation] : runtime().allocations) {
    if (!allocation.on_device) continue;
    if (::mprotect(allocation.block, allocation.block_bytes, protection) != 0) throw Finding("mprotect");
  }
}

void hide_device_memory() {
  if (!runtime().separate || runtime().hidden) return;
  protect_device_memory(PROT_NONE);
  runtime().hidden = true;
}

// Is never destroyed: threads of other libraries may still call it at exit.
Runtime& make_runtime() {
  auto& made = *new Runtime;
  const char* const seed = std::getenv("TUTTI_STANDIN_SEED");
  made.schedule.set_order(seed == nullptr ? 1 : std::stoull(seed));
  const char* const threads = std::getenv("TUTTI_STANDIN_HOST_THREADS");
  made.host_threads = threads == nullptr ? 1 : static_cast<unsigned>(std::stoul(threads));
  made.separate = std::getenv("TUTTI_STANDIN_SEPARATE") != nullptr;
  return made;
}

}  // namespace

Runtime& runtime() {
  static Runtime& made = make_runtime();
  return made;
}

Lock::Lock() {
  runtime().mutex.lock();
  ++calls_under_way;
}

Lock::~Lock() {
  if (--calls_under_way == 0) hide_device_memory();
  runtime().mutex.unlock();
}

void Lock::pause() {
  runtime().mutex.unlock();
  std::this_thread::sleep_for(std::chrono::microseconds(20));
  runtime().mutex.lock();
}

void reveal_device_memory() {
  if (!runtime().hidden) return;
  protect_device_memory(PROT_READ | PROT_WRITE);
  runtime().hidden = false;
}

cudaError_t fail(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

void refuse_dead(const void* handle, const char* what) {
  if (!runtime().handles.contains(handle)) throw Finding(fmt::format("a call is given {} that is not alive", what));
}

CUstream_st& stream_of(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy) return runtime().default_stream;
  refuse_dead(stream, "a stream");
  return *stream;
}

cudaError_t enqueue(CUstream_st& stream, std::function<void()> work, std::function<bool()> can_run) {
  if (stream.capture && !stream.capture->valid) return cudaErrorStreamCaptureInvalidated;
  auto operation = std::make_shared<Operation>();
  operation->work = [work = std::move(work)] {
    reveal_device_memory();
    work();
  };
  if (can_run) {
    operation->can_run = [can_run = std::move(can_run)] {
      reveal_device_memory();
      return can_run();
    };
  }
  operation->lane = stream.lane;
  operation->after = stream.tail;
  stream.tail = {operation};
  if (stream.capture) {
    stream.capture->nodes.push_back(operation);
  } else {
    runtime().schedule.add(operation);
  }
  return cudaSuccess;
}

void run_until(Lock& lock, const Point& point) {
  while (!reached(point)) {
    if (runtime().schedule.step()) continue;
    if (!runtime().schedule.waits_for_others()) {
      throw Finding("what is waited for can never be done: nothing that it comes after can run");
    }
    lock.pause();
  }
}

void run_everything(Lock& lock) {
  while (!runtime().schedule.empty()) {
    if (runtime().schedule.step()) continue;
    lock.pause();
  }
}

cudaError_t refuse_while_capturing() {
  cudaError_t status = cudaSuccess;
  for (const auto& reference : runtime().captures) {
    const auto capture = reference.lock();
    if (!capture || !capture->active || capture->mode == cudaStreamCaptureModeRelaxed) continue;
    if (capture->mode == cudaStreamCaptureModeThreadLocal && capture->thread != std::this_thread::get_id()) continue;
    spoil(*capture);
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

cudaError_t refuse_while_anyone_captures() {
  cudaError_t status = cudaSuccess;
  for (const auto& reference : runtime().captures) {
    const auto capture = reference.lock();
    if (!capture || !capture->active) continue;
    spoil(*capture);
    status = cudaErrorStreamCaptureUnsupported;
  }
  return status;
}

const std::pair<const std::uintptr_t, Allocation>* find_allocation(const void* address) {
  const auto& all = runtime().allocations;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  auto after = all.upper_bound(place);
  if (after == all.begin()) return nullptr;
  --after;
  return place < after->first + after->second.bytes ? &*after : nullptr;
}

void set_order(std::uint64_t seed) {
  const Lock lock;
  runtime().schedule.set_order(seed);
}

void set_host_threads(unsigned count) {
  const Lock lock;
  runtime().host_threads = count;
}

void ignore_wait(std::int64_t n) {
  const Lock lock;
  runtime().ignored_wait = n == 0 ? 0 : runtime().waits + n;
}

std::int64_t waits_so_far() {
  const Lock lock;
  return runtime().waits;
}

void separate_memory(bool separate) {
  const Lock lock;
  reveal_device_memory();
  runtime().separate = separate;
}

std::size_t allocations() {
  const Lock lock;
  return runtime().allocations.size();
}

cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, std::function<bool()> can_run) {
  const Lock lock;
  return enqueue(stream_of(stream), std::move(work), std::move(can_run));
}

}  // namespace tutti::standin

using tutti::standin::last_error;

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorSystemNotReady:
      return "cudaErrorSystemNotReady";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorIllegalState:
      return "cudaErrorIllegalState";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
    case cudaErrorStreamCaptureMerge:
      return "cudaErrorStreamCaptureMerge";
    case cudaErrorStreamCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorStreamCaptureWrongThread:
      return "cudaErrorStreamCaptureWrongThread";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
    default:
      return "an error that the stand-in does not name";
  }
}
const char* cudaGetErrorString(cudaError_t) { return "reported by the stand-in for CUDA"; }

}  // extern "C"
