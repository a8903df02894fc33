#include "backend/cuda/check.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti::cuda {

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not report this failure again
  throw Error(ErrorSource::cuda, fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status)), where);
}

void check(cudnnStatus_t status, std::source_location where) {
  if (status != CUDNN_STATUS_SUCCESS) throw Error(ErrorSource::cudnn, cudnnGetErrorString(status), where);
}

}  // namespace tutti::cuda
