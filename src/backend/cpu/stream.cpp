#include "backend/cpu/stream.hpp"

#include "tutti/backend/host_memory.hpp"

#include "backend/cpu/library.hpp"

#include <omp.h>

#include <algorithm>

namespace tutti::cpu {

void WorkerPool::run(int tasks, const std::function<void(int)>& task) {
  const int threads = std::min(threads_, tasks);
  if (threads <= 1) {
    for (int i = 0; i < tasks; ++i) task(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (int i = 0; i < tasks; ++i) task(i);
}

void CpuStream::synchronize() {
  check([] { return "waiting for a stream"; }, [&] { stream_.wait(); });
}

void* CpuStream::scratch(std::size_t bytes) {
  if (scratch_.bytes() < bytes) {
    scratch_ = Buffer();  // both at once would be the most that is ever held
    scratch_ = allocate_host(bytes);
  }
  return scratch_.data();
}

WorkerPool& CpuStream::workers() {
  if (!workers_) workers_ = std::make_unique<WorkerPool>(omp_get_max_threads());
  return *workers_;
}

CpuStream& cpu_stream(Stream& stream) {
  auto* const ours = dynamic_cast<CpuStream*>(&stream);
  if (ours == nullptr) throw Error(ErrorSource::internal, "a stream of another backend was given to the cpu backend");
  return *ours;
}

}  // namespace tutti::cpu
