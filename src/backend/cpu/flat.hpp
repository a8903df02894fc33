#pragma once
// Plain vector operations over flat host memory, element by element in canonical order.

#include "tutti/backend/backend.hpp"

namespace tutti::cpu {

void copy(const Tensor& to, const Tensor& from);
void fill_zero(const Tensor& tensor);
void add(const Tensor& to, const Tensor& from);
void sgd_step(const SgdStep& step);

}  // namespace tutti::cpu
