#pragma once
// The order of work in one thread, and the scratch memory of the primitives that run in it, one after
// another. oneDNN's own scratch memory belongs to the thread that made a primitive, which need not be the one
// that runs it.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <dnnl.hpp>

#include <functional>
#include <memory>

namespace tutti::cpu {

// The threads that work off the tasks of one pass: those of OpenMP, which the library uses, too. A second set would
// find the cores taken by threads of the first that spin: with two threads, ResNet-18's steps took 1.3 times as long.
// Chance decides who takes which task, so that nothing may depend on it: tasks are cut without regard to the number of
// threads.
class WorkerPool {
 public:
  // The calling thread counts as one of them.
  explicit WorkerPool(int threads) : threads_(threads) {}

  int size() const noexcept { return threads_; }
  // Returns when all of task(0) .. task(tasks - 1) have returned. They must not throw.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  int threads_;
};

class CpuStream final : public Stream {
 public:
  explicit CpuStream(const dnnl::engine& engine) : stream_(engine) {}
  void synchronize() override;

  const dnnl::stream& get() const noexcept { return stream_; }
  // At least so many bytes; what an earlier call returned is void.
  void* scratch(std::size_t bytes);
  // Of as many threads as were set for the thread that asks for it first.
  WorkerPool& workers();

 private:
  dnnl::stream stream_;
  Buffer scratch_;
  std::unique_ptr<WorkerPool> workers_;
};

// Throws when another backend made the stream.
CpuStream& cpu_stream(Stream& stream);

}  // namespace tutti::cpu
