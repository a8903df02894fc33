#pragma once
// The stream of one thread, with the workspace and the worker threads of its primitives, which run one after another.
// oneDNN's own scratchpad belongs to the thread that made a primitive, which need not be the one that runs it.

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
  // A workspace of at least `bytes`. Invalidates the memory of earlier calls.
  void* scratch(std::size_t bytes);
  // The number of threads that run the tasks of one pass, including the caller: the setting of the thread that calls
  // this first. They are OpenMP threads, as oneDNN's. A second thread pool would compete for cores with the spinning
  // threads of the first: with two threads, ResNet-18's steps took 1.3 times as long.
  int workers();
  // Runs task(0) .. task(tasks - 1) and waits for all. Tasks must not throw. The schedule is dynamic, so results must
  // not depend on which worker runs a task, nor may the division into tasks depend on the number of workers.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  dnnl::stream stream_;
  Buffer scratch_;
  int workers_ = 0;  // 0: not set yet
};

// Throws when another backend made the stream.
CpuStream& cpu_stream(Stream& stream);

}  // namespace tutti::cpu
