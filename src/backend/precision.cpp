#include "tutti/backend/precision.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <array>

namespace tutti {

std::string_view name_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return "fp32";
    case Precision::tf32:
      return "tf32";
    case Precision::bf16:
      return "bf16";
  }
  return "?";
}

Precision parse_precision(std::string_view word) {
  for (const Precision precision : std::array{Precision::fp32, Precision::tf32, Precision::bf16}) {
    if (word == name_of(precision)) return precision;
  }
  throw Error(ErrorSource::usage, fmt::format("--precision {}: must be one of fp32, tf32, bf16", word));
}

}  // namespace tutti
