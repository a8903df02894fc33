#include "backend/cuda/cudnn_descriptor.hpp"

#include "backend/cuda/check.hpp"

#include <algorithm>

namespace tutti::cuda {

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) : type_(type) {
  cudnnBackendDescriptor_t descriptor = nullptr;
  check(cudnnBackendCreateDescriptor(type, &descriptor));
  handle_ = decltype(handle_)(descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                          const void* values) {
  check(cudnnBackendSetAttribute(get(), name, type, count, values));
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
  const cudnnBackendDescriptor_t descriptor = value.get();
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &descriptor);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> descriptors;
  for (const CudnnDescriptor& value : values) descriptors.push_back(value.get());
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(descriptors.size()), descriptors.data());
}

std::size_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                                 void* values) const {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(get(), name, type, most, &count, values));
  return static_cast<std::size_t>(std::min(count, most));
}

void CudnnDescriptor::finalize() { check(cudnnBackendFinalize(get())); }

bool CudnnDescriptor::try_finalize() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

// cuDNN writes into descriptors that exist.
std::vector<CudnnDescriptor> CudnnDescriptor::descriptors(cudnnBackendAttributeName_t name,
                                                          cudnnBackendDescriptorType_t type, std::int64_t most) const {
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < most; ++i) handles.push_back(found.emplace_back(type).get());
  const std::size_t count = get(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, handles.data());
  found.erase(found.begin() + static_cast<std::ptrdiff_t>(count), found.end());
  return found;
}

}  // namespace tutti::cuda
