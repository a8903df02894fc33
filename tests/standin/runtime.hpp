#pragma once
// The state of the stand-in's CUDA calls: streams, events, captures and graphs as points in one schedule, and the
// allocations. Streams do not synchronize with the default stream, which calls without a stream use.

#include "standin/schedule.hpp"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

struct CUstream_st;

namespace tutti::standin {

// A capture: the work that its streams record instead of running it.
struct Capture {
  struct Member {
    CUstream_st* stream;
    Point tail_before;
  };
  cudaStreamCaptureMode mode;
  std::thread::id thread;
  std::vector<Member> members;  // the first began it
  Point nodes;
  bool valid = true;
  bool active = true;
};

}  // namespace tutti::standin

struct CUstream_st {
  int device = 0;
  int priority = 0;
  unsigned lane = 0;
  tutti::standin::Point tail;  // the next operation depends on it
  std::shared_ptr<tutti::standin::Capture> capture;
};

struct CUevent_st {
  int device = 0;
  tutti::standin::Point point;
  std::shared_ptr<tutti::standin::Capture> capture;  // of the stream it was recorded in last
  bool timed = false;
  std::shared_ptr<std::chrono::steady_clock::time_point> reached_at{};
};

struct CUgraph_st {
  tutti::standin::Point nodes;
};

struct CUgraphExec_st {
  tutti::standin::Point nodes;
  tutti::standin::Point last_launch;
};

namespace tutti::standin {

struct Allocation {
  std::size_t bytes = 0;
  bool on_device = false;
  int device = 0;
  void* block = nullptr;  // whole pages
  std::size_t block_bytes = 0;
};

struct Runtime {
  std::recursive_mutex mutex;
  Schedule schedule;
  std::set<const void*> handles;  // that were created and not destroyed
  std::map<std::uintptr_t, Allocation> allocations;
  std::vector<std::weak_ptr<Capture>> captures;
  CUstream_st default_stream;
  unsigned lanes = 0;
  unsigned host_threads = 1;  // that run the blocks of a kernel
  std::int64_t waits = 0;     // calls of cudaStreamWaitEvent
  std::int64_t ignored_wait = 0;
  bool separate = false;  // memory of host and device
  bool hidden = false;    // is what the device has
};

Runtime& runtime();

// The lock that every call takes.
class Lock {
 public:
  Lock();
  ~Lock();
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  // Releases the lock briefly.
  void pause();
};
// Before anything touches device memory.
void reveal_device_memory();

// Sets the thread's last error and returns it.
cudaError_t fail(cudaError_t error);

// Throws a Finding for handles that were destroyed or never created. Null is the default stream.
CUstream_st& stream_of(cudaStream_t stream);
void refuse_dead(const void* handle, const char* what);

// In stream order, or noted when the stream is being captured. Asynchronous.
cudaError_t enqueue(CUstream_st& stream, std::function<void()> work, std::function<bool()> can_run = {});
// Runs work until the point is reached; lets go of the lock while it waits for others.
void run_until(Lock& lock, const Point& point);
void run_everything(Lock& lock);
// cudaSuccess unless the calling thread is capturing in a mode that forbids what may wait; the capture is spoilt then.
cudaError_t refuse_while_capturing();
cudaError_t refuse_while_anyone_captures();

// The allocation that holds the address, or null: memory of the host that CUDA does not know.
const std::pair<const std::uintptr_t, Allocation>* find_allocation(const void* address);
int current_device();
// Of the machine, less what is not visible.
int device_count();
std::size_t device_memory_bytes();
// Whether CUDA_MODULE_LOADING was EAGER when CUDA started.
bool loads_eagerly();

}  // namespace tutti::standin
