#include "backend/cpu/stream.hpp"

#include "backend/cpu/check.hpp"
#include "backend/cpu/memory.hpp"

namespace tutti::cpu {

void CpuStream::synchronize() {
  check([] { return "waiting for a stream"; }, [&] { stream_.wait(); });
}

void* CpuStream::scratch(std::size_t bytes) {
  if (scratch_.bytes() < bytes) scratch_ = allocate_host(bytes);
  return scratch_.data();
}

CpuStream& cpu_stream(Stream& stream) {
  auto* const ours = dynamic_cast<CpuStream*>(&stream);
  if (ours == nullptr) throw Error(ErrorSource::internal, "a stream of another backend was given to the cpu backend");
  return *ours;
}

}  // namespace tutti::cpu
