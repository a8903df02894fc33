#pragma once
// The memory of a tensor as kernels take it. Throws an internal error when it is not a GPU's, or of another type.

#include "tutti/backend/tensor.hpp"

namespace tutti::cuda {

float* device_f32(const Tensor& tensor);
double* device_f64(const Tensor& tensor);
std::int32_t* device_i32(const Tensor& tensor);
std::int64_t* device_i64(const Tensor& tensor);

}  // namespace tutti::cuda
