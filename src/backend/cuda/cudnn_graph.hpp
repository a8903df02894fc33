#pragma once
// One pass of a convolution as a cuDNN graph, and the engines that cuDNN proposes for it. Nothing runs here, so plans
// can be made for a GPU that is not present.

#include "tutti/base/unique_handle.hpp"

#include "backend/cuda/engine_table.hpp"
#include "backend/cuda/runtime.hpp"

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tutti::cuda {

// cuDNN's name for the type of an attribute's values. Descriptors are missing: to the compiler they are void pointers.
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

// An owned cuDNN backend descriptor with typed attributes. It is set up, finalized, and then only read.
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
  // False if cuDNN does not support the descriptor.
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
  // The same for descriptors of one type.
  std::vector<CudnnDescriptor> descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                           std::int64_t most = 1) const;

 private:
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count, const void* values);
  // Returns the number of values.
  std::size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t most,
                  void* values) const;

  cudnnBackendDescriptorType_t type_;
  UniqueHandle<cudnnBackendDescriptor_t, ReleaseBy<cudnnBackendDestroyDescriptor>> handle_;
};

// The unique ids of a graph's tensors.
inline constexpr std::int64_t kInputTensor = 1;
inline constexpr std::int64_t kFilterTensor = 2;
inline constexpr std::int64_t kOutputTensor = 3;

// The GPU for which plans are made: a handle, or device properties.
class CudnnTarget {
 public:
  virtual ~CudnnTarget() = default;
  // Sets the target on the descriptor of a graph, heuristic, engine or execution plan before it is finalized.
  virtual void apply_to(CudnnDescriptor& descriptor) const = 0;
};

struct CudnnEngine {
  CudnnDescriptor configuration;
  CudnnDescriptor plan;
  std::size_t scratch_bytes = 0;

  EngineChoice choice() const;
  bool is_compiled_at_run_time() const;
};

class CudnnGraph {
 public:
  // The target is borrowed.
  CudnnGraph(const CudnnTarget& target, ConvolutionPass pass, const ConvolutionShape& shape);

  // The first engines, at most `most`, of cuDNN's heuristics A and B and of its fallback list, in this order, each with
  // its best settings; empty if cuDNN cannot compute the pass. Engines that are non-deterministic or less precise than
  // the shape requires are excluded.
  std::vector<CudnnEngine> engines(std::size_t most = kMaxCandidates) const;
  // The engine that choice() described, possibly in another process; empty if cuDNN does not have it.
  std::optional<CudnnEngine> engine(const EngineChoice& choice) const;

 private:
  std::vector<CudnnDescriptor> proposals(cudnnBackendHeurMode_t mode) const;
  bool allows(const CudnnDescriptor& engine) const;
  std::optional<CudnnEngine> build(CudnnDescriptor configuration) const;

  const CudnnTarget& target_;
  Precision precision_;
  CudnnDescriptor graph_;
};

}  // namespace tutti::cuda
