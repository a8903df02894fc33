#include "tutti/backend/cuda_library.hpp"

#include "backend/cuda/backend.hpp"
#include "backend/cuda/device_query.hpp"

namespace tutti {

extern "C" const CudaLibrary& tutti_cuda_library() {
  static const CudaLibrary library{
      .query = cuda::query_devices, .make_backend = cuda::make_backend, .free_bytes = cuda::free_bytes};
  return library;
}

}  // namespace tutti
