#include "backend/cuda/backend.hpp"

#include "tutti/base/error.hpp"

#include "backend/cuda/runtime.hpp"
#include "backend/requests.hpp"

#include <fmt/format.h>
#include <nvtx3/nvToolsExt.h>

namespace tutti::cuda {
namespace {

CudaDevice device_at(int device) {
  const CudaInventory inventory = query_devices();
  const std::size_t count = inventory.devices.size();
  if (device < 0 || static_cast<std::size_t>(device) >= count) {
    throw Error(ErrorSource::usage,
                inventory.unavailable_reason.empty()
                    ? fmt::format("GPU {} was requested, but {} are visible to this process", device, count)
                    : fmt::format("no GPU can be used: {}; choose --device cpu", inventory.unavailable_reason));
  }
  return inventory.devices[static_cast<std::size_t>(device)];
}

ElementType element_type(Precision precision) {
  return precision == Precision::bf16 ? ElementType::bf16 : ElementType::f32;
}

cudaMemcpyKind kind_of(MemorySpace to, MemorySpace from) {
  if (to == MemorySpace::host) return from == MemorySpace::host ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost;
  return from == MemorySpace::host ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToDevice;
}

bool is_pageable(const Tensor& tensor) {
  if (tensor.space != MemorySpace::host) return false;
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, tensor.data));
  return attributes.type == cudaMemoryTypeUnregistered;
}

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options)
    : device_(device_at(options.device)),
      uses_graphs_(options.use_graphs),
      warn_(options.warn),
      planner_(options),
      processor_{.device = options.device,
                 .precision = options.precision,
                 .type = element_type(options.precision),
                 .planner = planner_} {}

CudaBackend::~CudaBackend() {
  if (in_range_) static_cast<void>(nvtxRangePop());
}

std::string CudaBackend::description() const {
  // The kind of processor, up to the first comma, includes what the grids of sums depend on.
  return fmt::format("cuda: {} ({} multiprocessors), {:.0f} GiB, {}", device_.name, multiprocessors(processor_.device),
                     static_cast<double>(device_.memory_bytes) / 0x1p30, convolution_library());
}

// The calls return the nesting depth, or an error if no profiler is attached.
void CudaBackend::begin_range(const char* name) {
  if (in_range_) static_cast<void>(nvtxRangePop());
  static_cast<void>(nvtxRangePushA(name));
  in_range_ = true;
}

// Work that cannot be captured can still be enqueued call by call.
std::unique_ptr<Graph> CudaBackend::capture(Stream& stream, const std::function<void()>& enqueue) {
  if (!uses_graphs_) return nullptr;
  try {
    return capture_cuda_graph(as_cuda_stream(stream), enqueue);
  } catch (const Error& error) {
    if (!is_of_gpu(error)) throw;
    if (uses_graphs_.exchange(false) && warn_) {
      warn_(
          fmt::format("a step could not be recorded as a CUDA graph, so steps run without graphs from here on, with "
                      "the same results ({}); --record-steps off saves the attempt",
                      error.what()));
    }
    return nullptr;
  }
}

void CudaBackend::copy(Stream& stream, const Tensor& to, const Tensor& from) {
  require_equal_sizes("copying between", static_cast<std::int64_t>(to.bytes()),
                      static_cast<std::int64_t>(from.bytes()));
  if (to.bytes() == 0) return;
  if (to.space == MemorySpace::cuda && to.bytes() <= kSmallBytes && is_pageable(from)) {
    return write_small(as_cuda_stream(stream), to, from.data);
  }
  // The driver would block in such a copy, and the wait callback could not report a hanging collective.
  if (is_pageable(to) || is_pageable(from)) stream.synchronize();
  check(cudaMemcpyAsync(to.data, from.data, to.bytes(), kind_of(to.space, from.space), native(as_cuda_stream(stream))));
}

void CudaBackend::fill_zero(Stream& stream, const Tensor& tensor) {
  if (tensor.space != MemorySpace::cuda) {
    throw Error(ErrorSource::internal,
                fmt::format("the cuda backend cannot clear a tensor of {} in host memory", tensor.shape.text()));
  }
  if (tensor.bytes() > 0) check(cudaMemsetAsync(tensor.data, 0, tensor.bytes(), native(as_cuda_stream(stream))));
}

std::unique_ptr<Layer> CudaBackend::make_layer(const LayerSpec& spec, const LayerRequest& request) {
  require_samples(spec, request);
  const auto make_native = [&](const LayerRequest& native_request) {
    return std::visit([&](const auto& layer) { return make(processor_, layer, native_request); }, spec);
  };
  const bool takes_plain = is_plain(request.input) || (takes_residual(spec) && is_plain(request.residual));
  return takes_plain ? make_converting_layer(processor_, request, make_native) : make_native(request);
}

}  // namespace tutti::cuda

namespace tutti {

extern "C" const CudaLibrary& tutti_cuda_library() {
  static const CudaLibrary library{
      .query = cuda::query_devices,
      .make_backend = [](const CudaOptions& options) -> std::unique_ptr<Backend> {
        return std::make_unique<cuda::CudaBackend>(options);
      },
      .free_bytes = cuda::free_bytes,
      .search_summary =
          [](const Backend& backend) { return dynamic_cast<const cuda::CudaBackend&>(backend).search_summary(); }};
  return library;
}

}  // namespace tutti
