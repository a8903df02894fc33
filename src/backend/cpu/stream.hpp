#pragma once
// The stream of one thread, with the workspace and the worker threads of its passes, which run one after another.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <functional>

namespace tutti::cpu {

class CpuStream final : public Stream {
 public:
  void synchronize() override {}

  // A workspace of at least `floats`. Invalidates the memory of earlier calls.
  float* scratch(std::int64_t floats);
  // The number of threads that run the tasks of one pass, including the caller: the setting of the thread that calls
  // this first.
  int workers();
  // Runs task(0) .. task(tasks - 1) and waits for all. Tasks must not throw. The schedule is dynamic: no result
  // may depend on the division into tasks or on the worker that runs one.
  void run(int tasks, const std::function<void(int)>& task);

 private:
  Buffer scratch_;
  int workers_ = 0;  // 0: not set yet
};

// Throws when another backend made the stream.
CpuStream& cpu_stream(Stream& stream);

}  // namespace tutti::cpu
