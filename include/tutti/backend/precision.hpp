#pragma once
// In what number format the layers compute. Parameters, gradients, statistics and sums are f32 or wider in each.

#include <string_view>

namespace tutti {

enum class Precision { fp32, tf32, bf16 };
Precision parse_precision(std::string_view word);  // throws a usage error naming the choices
std::string_view name_of(Precision precision);

}  // namespace tutti
