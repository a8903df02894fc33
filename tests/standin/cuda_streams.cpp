// CUDA's stream and event calls, and kernel launches.

#include "tutti/comm/world.hpp"

#include "standin/device/kernel.cuh"
#include "standin/finding.hpp"
#include "standin/runtime.hpp"

#include <cxxabi.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <regex>
#include <sstream>
#include <utility>

using namespace tutti::standin;

namespace tutti::standin {
namespace {

cudaError_t make_stream(cudaStream_t* stream, unsigned flags, int priority) {
  const Lock lock;
  if (flags != cudaStreamNonBlocking) throw Finding("streams that wait for the default stream are not provided for");
  auto* const made = new CUstream_st;
  made->device = current_device();
  made->priority = priority;
  made->lane = ++runtime().lanes;
  runtime().handles.insert(made);
  *stream = made;
  return cudaSuccess;
}

cudaError_t make_event(cudaEvent_t* event, unsigned flags) {
  const Lock lock;
  auto* const made = new CUevent_st;
  made->device = current_device();
  made->timed = (flags & cudaEventDisableTiming) == 0;
  runtime().handles.insert(made);
  *event = made;
  return cudaSuccess;
}

// A captured stream and its events cannot be queried or waited for, nor can any stream by a capturing thread.
cudaError_t refuse_captured(const std::shared_ptr<Capture>& capture, cudaError_t error) {
  if (!capture) return refuse_while_capturing();
  capture->valid = false;
  return error;
}

// The device's error from $TUTTI_STANDIN_ERROR; cudaSuccess on other ranks and before that query.
cudaError_t error_of_device() {
  static const auto fault = [] {
    std::array<int, 3> words{0, -1, 0};  // error, rank, query
    if (const char* const text = std::getenv("TUTTI_STANDIN_ERROR")) {
      std::istringstream(text) >> words[0] >> words[1] >> words[2];
    }
    return words;
  }();
  static int queries = 0;
  return launcher_rank() == fault[1] && ++queries >= fault[2] ? static_cast<cudaError_t>(fault[0]) : cudaSuccess;
}

// Other threads of the host sometimes run in between, and so does the work, of which a query is not part.
cudaError_t query(Lock& lock, const Point& point) {
  if (const cudaError_t error = error_of_device(); error != cudaSuccess) return error;
  if (runtime().schedule.random().below(16) == 0) lock.pause();
  runtime().schedule.dawdle();
  if (!reached(point) && runtime().schedule.random().below(4) == 0) runtime().schedule.step();
  return reached(point) ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t wait_in_capture(CUstream_st& stream, const CUevent_st& event) {
  if (!event.capture->active) return cudaErrorCapturedEvent;
  if (!event.capture->valid) return cudaErrorStreamCaptureInvalidated;
  if (!stream.capture) {
    event.capture->members.push_back({&stream, std::exchange(stream.tail, {})});
    stream.capture = event.capture;
  } else if (stream.capture != event.capture) {
    stream.capture->valid = event.capture->valid = false;
    return cudaErrorStreamCaptureMerge;
  }
  join(stream.tail, event.point);
  return cudaSuccess;
}

cudaError_t wait_event(CUstream_st& stream, const CUevent_st& event) {
  if (!stream.capture) ++runtime().enqueued.calls["wait"];
  if (++runtime().waits == runtime().ignored_wait) return cudaSuccess;
  if (event.capture) return wait_in_capture(stream, event);
  if (stream.capture) return refuse_captured(stream.capture, cudaErrorStreamCaptureIsolation);
  join(stream.tail, event.point);
  return cudaSuccess;
}

CUevent_st& event_of(cudaEvent_t event) {
  refuse_dead(event, "an event");
  return *event;
}

bool is_legal(const KernelLaunch& launch) {
  return launch.blocks > 0 && launch.blocks <= 0x7fffffff && launch.blocks_y > 0 && launch.blocks_y <= 0xffff &&
         launch.threads > 0 && launch.threads <= 1024;
}

// Programs and their heaps are in the upper part of the address space. Two small integers next to each other look like
// an address in the lower part, where the address sanitizer has its shadow.
bool is_mapped(std::uint64_t address) {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  unsigned char resident = 0;
  return address >= (std::uint64_t{1} << 45) && address < (std::uint64_t{1} << 47) &&
         ::mincore(reinterpret_cast<void*>(address / page * page), page, &resident) == 0;
}

// Treats every word that could be an address as one, unless it may be a bool with leftovers after it. An address just
// after CUDA's memory may be an end.
void refuse_memory_of_the_host(const KernelLaunch& launch) {
  for (const std::uint64_t word : launch.words) {
    const auto* const place = reinterpret_cast<const std::byte*>(word);
    if (word % 256 <= 1 || !is_mapped(word) || find_allocation(place) != nullptr ||
        find_allocation(place - 1) != nullptr)
      continue;
    throw Finding(fmt::format("a kernel is given {:#x}, which is memory of the host only, or was freed", word));
  }
}

}  // namespace

std::string kind_of(const std::type_info& tuple) {
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(tuple.name(), nullptr, nullptr, nullptr),
                                                         &std::free);
  return std::regex_replace(name.get(), std::regex(R"(^std::tuple<| ?>$|\(anonymous namespace\)::|\w+::)"), "");
}

void enqueue_kernel(const KernelLaunch& launch, cudaStream_t stream) {
  const Lock lock;
  CUstream_st& on = stream_of(stream);
  if (!is_legal(launch)) return static_cast<void>(fail(cudaErrorInvalidConfiguration));
  if (on.device != current_device()) return static_cast<void>(fail(cudaErrorInvalidResourceHandle));
  if (runtime().separate) refuse_memory_of_the_host(launch);
  const dim3 blocks(static_cast<unsigned>(launch.blocks), static_cast<unsigned>(launch.blocks_y));
  fail(enqueue(on, launch.kind, [=] {
    run_kernel(
        {blocks, static_cast<unsigned>(launch.threads), launch.body, launch.arguments.get(), runtime().host_threads},
        runtime().schedule.random().next());
  }));
}

void refuse_partial_mask(unsigned mask, const Where& where) {
  if (mask == 0xffffffffU) return;
  throw Finding(
      fmt::format("{}:{}: an exchange within a part of a warp is not provided for", where.file_name(), where.line()));
}

}  // namespace tutti::standin

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return make_stream(stream, flags, priority);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) { return make_stream(stream, flags, 0); }

// Enqueued work is still executed.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock;
  refuse_dead(stream, "a stream");
  if (stream->capture) throw Finding("a stream is destroyed while it is being captured");
  runtime().handles.erase(stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  Lock lock;
  const CUstream_st& queried = stream_of(stream);
  if (const cudaError_t status = refuse_captured(queried.capture, cudaErrorStreamCaptureUnsupported);
      status != cudaSuccess) {
    return fail(status);
  }
  return fail(query(lock, Point(queried.tail)));
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock;
  const CUstream_st& waited = stream_of(stream);
  if (const cudaError_t status = refuse_captured(waited.capture, cudaErrorStreamCaptureUnsupported);
      status != cudaSuccess) {
    return fail(status);
  }
  run_until(lock, Point(waited.tail));
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  Lock lock;
  if (const cudaError_t status = refuse_while_anyone_captures(); status != cudaSuccess) return fail(status);
  run_everything(lock);
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock;
  return fail(wait_event(stream_of(stream), event_of(event)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) { return make_event(event, flags); }
cudaError_t cudaEventCreate(cudaEvent_t* event) { return make_event(event, cudaEventDefault); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock;
  refuse_dead(event, "an event");
  runtime().handles.erase(event);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock;
  CUevent_st& marked = event_of(event);
  CUstream_st& marking = stream_of(stream);
  if (marked.device != marking.device) return fail(cudaErrorInvalidResourceHandle);
  if (marking.capture && !marking.capture->valid) return fail(cudaErrorStreamCaptureInvalidated);
  if (marked.timed && !marking.capture) {
    marked.reached_at = std::make_shared<std::chrono::steady_clock::time_point>();
    enqueue(marking, "", [at = marked.reached_at] { *at = std::chrono::steady_clock::now(); });
  }
  if (!marking.capture) ++runtime().enqueued.calls["event"];
  marked.point = marking.tail;
  marked.capture = marking.capture;
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  Lock lock;
  const CUevent_st& queried = event_of(event);
  if (const cudaError_t status = refuse_captured(queried.capture, cudaErrorCapturedEvent); status != cudaSuccess) {
    return fail(status);
  }
  return fail(query(lock, Point(queried.point)));
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t start, cudaEvent_t end) {
  const Lock lock;
  const CUevent_st& first = event_of(start);
  const CUevent_st& last = event_of(end);
  if (first.device != last.device || !first.reached_at || !last.reached_at) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!reached(first.point) || !reached(last.point)) return fail(cudaErrorNotReady);
  *ms = std::chrono::duration<float, std::milli>(*last.reached_at - *first.reached_at).count();
  return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock;
  const CUevent_st& waited = event_of(event);
  if (const cudaError_t status = refuse_captured(waited.capture, cudaErrorCapturedEvent); status != cudaSuccess) {
    return fail(status);
  }
  run_until(lock, Point(waited.point));
  return cudaSuccess;
}

}  // extern "C"
