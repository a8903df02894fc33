#include "backend/cpu/stream.hpp"

#include "tutti/base/error.hpp"

#include <omp.h>

#include <algorithm>

// The thread sanitizer, where it is linked. It does not see how libgomp, which is built without it, starts and ends a
// parallel region.
extern "C" {
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
}

namespace tutti::cpu {
namespace {

void acquire(void* address) {
  if (__tsan_acquire != nullptr) __tsan_acquire(address);
}

void release(void* address) {
  if (__tsan_release != nullptr) __tsan_release(address);
}

}  // namespace

float* CpuStream::scratch(std::int64_t floats) {
  const std::size_t bytes = static_cast<std::size_t>(floats) * sizeof(float);
  if (scratch_.bytes() < bytes) {
    scratch_ = Buffer();  // having both at once would raise the peak of memory
    scratch_ = allocate_host(bytes);
  }
  return static_cast<float*>(scratch_.data());
}

int CpuStream::workers() {
  if (workers_ == 0) workers_ = omp_get_max_threads();
  return workers_;
}

[[gnu::no_sanitize_thread]] void CpuStream::run(int tasks, const std::function<void(int)>& task) {
  const int threads = std::min(workers(), tasks);
  if (threads <= 1) {
    for (int i = 0; i < tasks; ++i) task(i);
    return;
  }
  release(this);
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int i = 0; i < tasks; ++i) {
    acquire(this);
    task(i);
    release(this);
  }
  acquire(this);
}

CpuStream& cpu_stream(Stream& stream) {
  auto* const ours = dynamic_cast<CpuStream*>(&stream);
  if (ours == nullptr) throw Error(ErrorSource::internal, "a stream of another backend was given to the cpu backend");
  return *ours;
}

}  // namespace tutti::cpu
