#pragma once
// The stream of one thread, with the scratch memory and the workers of the primitives that run in it one after another.
// oneDNN's own scratch memory belongs to the thread that made a primitive, which need not be the one that runs it.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <dnnl.hpp>

#include <functional>

namespace tutti::cpu {

class CpuStream final : public Stream {
 public:
  explicit CpuStream(const dnnl::engine& engine) : stream_(engine) {}
  void synchronize() override;

  const dnnl::stream& get() const noexcept { return stream_; }
  // At least so many bytes; memory that an earlier call returned is no longer valid.
  void* scratch(std::size_t bytes);
  // The number of threads that share the tasks of one pass, the calling one among them: what was set for the thread
  // that asks first. They are OpenMP's, which the library uses, too. A second set of threads would find the cores taken
  // by spinning threads of the first: with two threads, ResNet-18's steps took 1.3 times as long.
  int workers();
  // Returns when all of task(0) .. task(tasks - 1) have returned. They must not throw. Chance decides which worker
  // takes which task, so nothing may depend on it: tasks are cut without regard to the number of workers.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  dnnl::stream stream_;
  Buffer scratch_;
  int workers_ = 0;  // not asked for yet
};

// Throws when another backend made the stream.
CpuStream& cpu_stream(Stream& stream);

}  // namespace tutti::cpu
