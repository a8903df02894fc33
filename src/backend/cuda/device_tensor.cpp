#include "backend/cuda/device_tensor.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

namespace tutti::cuda {
namespace {

template <class T>
T* values_of(const Tensor& tensor, ElementType type) {
  if (tensor.space == MemorySpace::cuda && tensor.type == type) return static_cast<T*>(tensor.data);
  throw Error(
      ErrorSource::internal,
      fmt::format("the cuda backend is given {} {} in {} memory, where it takes {} in a GPU's", tensor.shape.text(),
                  name_of(tensor.type), tensor.space == MemorySpace::cuda ? "a GPU's" : "the host's", name_of(type)));
}

}  // namespace

float* device_f32(const Tensor& tensor) { return values_of<float>(tensor, ElementType::f32); }
double* device_f64(const Tensor& tensor) { return values_of<double>(tensor, ElementType::f64); }
std::int32_t* device_i32(const Tensor& tensor) { return values_of<std::int32_t>(tensor, ElementType::i32); }
std::int64_t* device_i64(const Tensor& tensor) { return values_of<std::int64_t>(tensor, ElementType::i64); }

}  // namespace tutti::cuda
