#pragma once
// The order of work in one thread, and the scratch memory of the primitives that run in it, one after
// another. oneDNN's own scratch memory belongs to the thread that made a primitive, which need not be the one
// that runs it.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include "backend/cpu/team.hpp"

#include <dnnl.hpp>

#include <memory>

namespace tutti::cpu {

class CpuStream final : public Stream {
 public:
  explicit CpuStream(const dnnl::engine& engine) : stream_(engine) {}
  void synchronize() override;

  const dnnl::stream& get() const noexcept { return stream_; }
  // At least so many bytes; what an earlier call returned is void.
  void* scratch(std::size_t bytes);
  // Of as many threads as were set for the thread that asks for it first.
  Team& team();

 private:
  dnnl::stream stream_;
  Buffer scratch_;
  std::unique_ptr<Team> team_;
};

// Throws when another backend made the stream.
CpuStream& cpu_stream(Stream& stream);

}  // namespace tutti::cpu
