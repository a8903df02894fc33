#pragma once
// Where values in host memory are NaN or infinite.

#include "tutti/backend/backend.hpp"

namespace tutti::cpu {

void find_not_finite(const NotFiniteSearch& search);

}  // namespace tutti::cpu
