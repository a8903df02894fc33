#pragma once
// cuDNN's backend descriptors as owned objects with typed attributes. A descriptor is set up, finalized, and then only
// read.

#include "tutti/base/unique_handle.hpp"

#include <cudnn.h>

#include <cstdint>
#include <vector>

namespace tutti::cuda {

// How cuDNN calls the type of an attribute's values. Descriptors are apart: to the compiler they are void pointers.
template <class T>
extern const cudnnBackendAttributeType_t kCudnnType;
// clang-format off
template <> inline constexpr auto kCudnnType<char> = CUDNN_TYPE_CHAR;
template <> inline constexpr auto kCudnnType<std::int64_t> = CUDNN_TYPE_INT64;
template <> inline constexpr auto kCudnnType<float> = CUDNN_TYPE_FLOAT;
template <> inline constexpr auto kCudnnType<void*> = CUDNN_TYPE_VOID_PTR;
template <> inline constexpr auto kCudnnType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <> inline constexpr auto kCudnnType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <> inline constexpr auto kCudnnType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <> inline constexpr auto kCudnnType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <> inline constexpr auto kCudnnType<cudnnBackendKnobType_t> = CUDNN_TYPE_KNOB_TYPE;
template <> inline constexpr auto kCudnnType<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;
template <> inline constexpr auto kCudnnType<cudnnBackendBehaviorNote_t> = CUDNN_TYPE_BEHAVIOR_NOTE;
// clang-format on

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptorType_t type() const { return type_; }
  cudnnBackendDescriptor_t get() const { return handle_.get(); }

  template <class T>
  void set(cudnnBackendAttributeName_t name, const T& value) {
    set(name, kCudnnType<T>, 1, &value);
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    set(name, kCudnnType<T>, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);
  void set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& values);

  void finalize();
  // False where cuDNN has no such thing.
  bool try_finalize();

  // At most `most` of the values.
  template <class T>
  std::vector<T> values(cudnnBackendAttributeName_t name, std::int64_t most = 1) const {
    std::vector<T> found(static_cast<std::size_t>(most));
    found.resize(get(name, kCudnnType<T>, most, found.data()));
    return found;
  }
  template <class T>
  T value(cudnnBackendAttributeName_t name) const {
    return values<T>(name).at(0);
  }
  // Likewise, of descriptors of one type.
  std::vector<CudnnDescriptor> descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                           std::int64_t most = 1) const;

 private:
  struct Destroy {
    void operator()(cudnnBackendDescriptor_t descriptor) const noexcept {
      static_cast<void>(cudnnBackendDestroyDescriptor(descriptor));
    }
  };

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  // How many there are.
  std::size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                  void* values) const;

  cudnnBackendDescriptorType_t type_;
  UniqueHandle<cudnnBackendDescriptor_t, Destroy> handle_;
};

}  // namespace tutti::cuda
