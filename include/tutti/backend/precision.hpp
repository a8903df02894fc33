#pragma once
// The number format in which layers compute. Parameters, gradients, statistics and sums are always f32 or wider.

#include "tutti/base/enum_names.hpp"

namespace tutti {

enum class Precision { fp32, tf32, bf16 };
constexpr std::array<std::string_view, 3> enum_names(Precision) { return {"fp32", "tf32", "bf16"}; }

}  // namespace tutti
