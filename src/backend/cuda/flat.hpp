#pragma once
// The vector operations of Backend on tensors in a GPU's memory. Each rounds as on the CPU, so that both give the same
// bits.

#include "tutti/backend/backend.hpp"
#include "tutti/backend/cuda_stream.hpp"

#include <span>

namespace tutti::cuda {

// All asynchronous.
void copy(CudaStream& stream, const Tensor& to, const Tensor& from);
void fill_zero(CudaStream& stream, const Tensor& tensor);
void add(CudaStream& stream, const Tensor& to, const Tensor& from);
void blend(CudaStream& stream, const Tensor& to, const Tensor& from, float share);
void find_not_finite(CudaStream& stream, const NotFiniteSearch& search);
void sgd_step(CudaStream& stream, const SgdStep& step);
void adamw_step(CudaStream& stream, const AdamWStep& step);
void sum_squares(CudaStream& stream, std::span<const Tensor> tensors, const Tensor& sums);
void sum_runs(CudaStream& stream, const Tensor& values, const Tensor& ends, const Tensor& sums);
void clip_factor(CudaStream& stream, const Tensor& squares, double most, const Tensor& factor);
void trust_factors(CudaStream& stream, const TrustFactors& request);

}  // namespace tutti::cuda
