#include "tutti/backend/cuda_library.hpp"

#include "device_query.hpp"
#include "flat_operations.hpp"

namespace tutti {

extern "C" const CudaLibrary& tutti_cuda_library() {
  static const CudaLibrary library{.query = cuda::query_devices,
                                   .allocate = allocate_cuda,
                                   .make_stream = make_cuda_stream,
                                   .copy = cuda::copy,
                                   .sgd_step = cuda::sgd_step};
  return library;
}

}  // namespace tutti
