#include "backend/cpu/stream.hpp"

#include "tutti/backend/host_memory.hpp"

#include "backend/cpu/check.hpp"

#include <omp.h>

namespace tutti::cpu {

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

Team& CpuStream::team() {
  if (!team_) team_ = std::make_unique<Team>(omp_get_max_threads());
  return *team_;
}

CpuStream& cpu_stream(Stream& stream) {
  auto* const ours = dynamic_cast<CpuStream*>(&stream);
  if (ours == nullptr) throw Error(ErrorSource::internal, "a stream of another backend was given to the cpu backend");
  return *ours;
}

}  // namespace tutti::cpu
