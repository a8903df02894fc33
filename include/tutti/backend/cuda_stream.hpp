#pragma once
// CUDA streams, events and memory for whoever works inside libtutti_cuda.so: the layers, and the NCCL communicator.
// Code outside that library reaches them through a Backend.

#include "tutti/backend/stream.hpp"
#include "tutti/backend/tensor.hpp"

#include <cstddef>
#include <functional>
#include <memory>

namespace tutti {

class CudaStream : public Stream {
 public:
  virtual int device() const = 0;
  // The cudaStream_t. Borrowed.
  virtual void* native() const = 0;
  // Work enqueued here after this waits for what is now in `other`, of the same device. Asynchronous.
  virtual void wait_for(const CudaStream& other) = 0;
  // Memory of the device for one operation at a time, at least so many bytes; it stays where it is for as long as
  // nobody asks for more, and what asked earlier keeps what it got until the stream goes.
  virtual void* scratch(std::size_t bytes) = 0;
};

// The stream seen as a CUDA one. Throws an internal error when it is another processor's.
CudaStream& as_cuda_stream(Stream& stream);

// What the calling thread does from now on concerns this device.
void use_cuda_device(int device);

// Urgent streams are served before others where the device has the choice.
enum class CudaPriority { usual, urgent };
// Does not wait for other streams of the process.
std::unique_ptr<CudaStream> make_cuda_stream(int device, CudaPriority priority = CudaPriority::usual);
std::unique_ptr<Event> make_cuda_event(int device);
std::unique_ptr<Event> make_timed_cuda_event(int device);
// As Backend::record.
std::unique_ptr<Recording> record_cuda_graph(CudaStream& stream, const std::function<void()>& enqueue);
// to += from, f32, element by element. Asynchronous.
void add_on_cuda(CudaStream& stream, const Tensor& to, const Tensor& from);
// Zeroed memory of the device, aligned to 256 bytes.
Buffer allocate_cuda(int device, std::size_t bytes);
// Zeroed memory of the host that the device reaches by itself.
Buffer allocate_pinned(int device, std::size_t bytes);

}  // namespace tutti
