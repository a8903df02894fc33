#pragma once
// CUDA streams, events and memory for code inside libtutti_cuda.so: the layers and the NCCL communicator. Other code
// uses them through a Backend.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

namespace tutti {

class CudaStream : public Stream {
 public:
  virtual int device() const = 0;
  // The cudaStream_t. Borrowed.
  virtual void* native() const = 0;
  // Work enqueued here from now on waits for all work that is in `other` now, as torch's wait_stream. Both streams must
  // be on the same device. Asynchronous.
  virtual void wait_for(const CudaStream& other) = 0;
  // A workspace of at least `bytes` of device memory, for one operation at a time. The address changes only when more
  // memory is requested; earlier blocks stay valid as long as the stream.
  virtual void* scratch(std::size_t bytes) = 0;
};

// The stream as a CUDA stream. Throws an internal error when it belongs to another processor.
CudaStream& as_cuda_stream(Stream& stream);

// Makes this the current device of the calling thread.
void use_cuda_device(int device);

// The device schedules work on urgent streams first.
enum class CudaPriority { usual, urgent };
// The stream does not synchronize with the default stream (cudaStreamNonBlocking).
std::unique_ptr<CudaStream> make_cuda_stream(int device, CudaPriority priority = CudaPriority::usual);
std::unique_ptr<Event> make_cuda_event(int device);
std::unique_ptr<Event> make_timed_cuda_event(int device);
// Implements Backend::capture.
std::unique_ptr<Graph> capture_cuda_graph(CudaStream& stream, const std::function<void()>& enqueue);
// to += from, f32, element by element. Asynchronous.
void add_on_cuda(CudaStream& stream, const Tensor& to, const Tensor& from);
// What memory is for; messages name it when memory is exhausted.
enum class CudaMemory { tensors, scratch, images };
// Zeroed device memory, aligned to 256 bytes. Throws a gpu_memory error, with what this process has allocated.
Buffer allocate_cuda(int device, std::size_t bytes, CudaMemory use = CudaMemory::tensors);
// The same with device memory of another allocator. Owns the memory at once.
Buffer adopt_cuda(int device, std::span<std::byte> memory, CudaMemory use, Buffer::Release release);
// Zeroed host memory that the device can access directly.
Buffer allocate_pinned(int device, std::size_t bytes);

}  // namespace tutti
