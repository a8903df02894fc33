#pragma once
// Control of the stand-in by tests, beyond CUDA's API.
//
// Environment: TUTTI_STANDIN_DEVICES is the number of GPUs of the machine (1), of which CUDA_VISIBLE_DEVICES shows
// some; TUTTI_STANDIN_MIG (1) of them are instances of one GPU each; TUTTI_STANDIN_MEMORY is the memory of each in MiB
// (8192), TUTTI_STANDIN_MULTIPROCESSORS the number of multiprocessors (4), TUTTI_STANDIN_MAJOR the major compute
// capability (9); TUTTI_STANDIN_SEED (1) chooses the order of work; TUTTI_STANDIN_HOST_THREADS (1) is the number of
// threads of the host that run the blocks of a kernel; TUTTI_STANDIN_SEPARATE separates memory, as below. With
// TUTTI_STANDIN_EAGER, NCCL refuses several ranks unless CUDA_MODULE_LOADING was EAGER when CUDA started. With
// TUTTI_STANDIN_UNCAPTURABLE, convolutions have two engines, of which the first so many fail while they are captured;
// with TUTTI_STANDIN_INEXACT="1e-3 1", the results of the first one are off by 1e-3. TUTTI_STANDIN_ENGINES is another
// number of engines (1). With TUTTI_STANDIN_START_ERROR, CUDA does not start and returns that error. With
// TUTTI_STANDIN_ERROR="214 1 30", the device of rank 1 fails with error 214 from its 30th query on.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace tutti::standin {

// Sets the seed for the order of streams and of threads within kernels.
void set_order(std::uint64_t seed);
// The blocks of a kernel run side by side on so many threads of the host; under the address sanitizer always on one.
void set_host_threads(unsigned count);
// Makes the n-th cudaStreamWaitEvent from now, counted from 1, a no-op; 0: none. Tests use it to prove that each wait
// is needed.
void ignore_wait(std::int64_t n);
std::int64_t waits_so_far();
// Whether the host crashes when it accesses device memory, and kernels with memory of the host only are found. Slow.
void separate_memory(bool separate);
// The number of allocations that were not freed.
std::size_t allocations();

// What was put on streams: kernels by the types of their parameters, "copy", "memset" and, for libraries, "other".
using Counts = std::map<std::string, std::int64_t>;
struct EnqueuedWork {
  Counts calls;  // by the host, with "graph", "event" and "wait"
  Counts work;   // the device's, with the nodes of graphs in their place
};
EnqueuedWork enqueued_so_far();

// NCCL's collectives of this process, of which a group is one.
std::int64_t nccl_launches();
// The blocks of memory that are registered with NCCL.
std::size_t nccl_windows();

// For libraries that enqueue work on streams. `can_run` is called repeatedly, and the stream waits while it returns
// false. Returns a CUDA error. Asynchronous.
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work, std::function<bool()> can_run = {});

}  // namespace tutti::standin
