#pragma once
// The vector operations of Backend over flat host memory: in flat.cpp element by element in canonical order, in
// exact.cpp what is the same in every order.

#include "tutti/backend/backend.hpp"

namespace tutti::cpu {

void copy(const Tensor& to, const Tensor& from);
void fill_zero(const Tensor& tensor);
void add(const Tensor& to, const Tensor& from);
void blend(const Tensor& to, const Tensor& from, float share);
void sgd_step(const SgdStep& step);
void adamw_step(const AdamWStep& step);
void sum_squares(std::span<const Tensor> tensors, const Tensor& sums);
void sum_runs(const Tensor& values, const Tensor& ends, const Tensor& sums);
void clip_factor(const Tensor& squares, double most, const Tensor& factor);
void trust_factors(const TrustFactors& request);

void to_fixed_point(const FixedPointGrid& grid, const ToFixedPoint& request);
void from_fixed_point(const FixedPointGrid& grid, const FromFixedPoint& request);
void add_digests(std::span<const DigestedTensor> tensors, const Tensor& digests);
void find_not_finite(const NotFiniteSearch& search);

}  // namespace tutti::cpu
