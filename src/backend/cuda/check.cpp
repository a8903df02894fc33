#include "backend/cuda/check.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <array>

namespace tutti::cuda {

void check(cudaError_t status, std::source_location where) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // so that the next call does not report this failure again
  const char* const remedy = status == cudaErrorMemoryAllocation ? "; lower --batch-size" : "";
  throw Error(ErrorSource::cuda, fmt::format("{}: {}{}", cudaGetErrorName(status), cudaGetErrorString(status), remedy),
              where);
}

void check(cudnnStatus_t status, std::source_location where) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  static_cast<void>(cudaGetLastError());  // what cuDNN met is no failure of the next launch
  std::array<char, 1024> details{};
  cudnnGetLastErrorString(details.data(), details.size());
  throw Error(ErrorSource::cudnn, fmt::format("{}: {}", cudnnGetErrorString(status), details.data()), where);
}

}  // namespace tutti::cuda
