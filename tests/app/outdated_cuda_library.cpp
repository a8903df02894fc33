// A library as an older build would have left it: the first field is the version, the rest is another world.

#include "tutti/backend/cuda_library.hpp"

namespace tutti {

extern "C" const CudaLibrary& tutti_cuda_library() {
  static const CudaLibrary library{.interface_version = kCudaInterfaceVersion - 1};
  return library;
}

}  // namespace tutti
