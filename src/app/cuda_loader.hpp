#pragma once
// Opens libtutti_cuda.so when a GPU is asked for. It lies beside libtutti.so and belongs to the same build;
// once opened it stays until the process ends, as CUDA wants it.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/comm/nccl_library.hpp"

#include <string>

namespace tutti {

struct CudaLibraries {
  const CudaLibrary& cuda;
  const NcclLibrary& nccl;
};

// Of this program's own library, and of the one for GPUs beside it.
std::string library_path();
std::string cuda_library_path();

// Throws a usage error that names the library, the reason and the remedy when it is missing, lacks a library
// of its own, or is of another build.
CudaLibraries load_cuda_libraries(const std::string& path = cuda_library_path());

}  // namespace tutti
