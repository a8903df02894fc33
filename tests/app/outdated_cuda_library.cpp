// A library of an older build: only the first field, the version, has the same meaning.

#include "tutti/backend/cuda_library.hpp"

namespace tutti {

extern "C" const CudaLibrary& tutti_cuda_library() {
  static const CudaLibrary library{.interface_version = kCudaInterfaceVersion - 1};
  return library;
}

}  // namespace tutti
