#pragma once
// Fixed-point sums, which do not depend on the order of addition: values are rounded to whole multiples of a power of
// two, which are added as integers. The power is fixed per slice of a block. The caller chooses it and deals with
// values that are too large for it.

#include "tutti/backend/tensor.hpp"

#include <cstdint>

namespace tutti {

// All in the processor's memory. Slices follow one another without gaps, from the block's first element on.
struct FixedPointGrid {
  Tensor ends;       // i64 [slices], ascending: the element of the block behind each slice
  Tensor exponents;  // i32 [slices], -900 .. 900: a slice's sums count in steps of 2^-exponent
};

// For elements place .. place + n - 1 of the block: sums += round(values * 2^exponent), to the nearest, ties to even.
struct ToFixedPoint {
  Tensor values;           // f32 [n]
  Tensor sums;             // i64 [n]; a value of 2^62 steps and more, or not finite, leaves it unspecified
  std::int64_t place = 0;  // of values in the block
  bool first = false;      // sums are overwritten instead
  // i32 [slices]: raised to the bits of the greatest |value| in each slice. The bits of infinity are above those of all
  // finite values, the bits of NaN above these. Calls that run at the same time must not touch the same slice.
  Tensor largest;
};

// values = sums * 2^-exponent, rounded from f64; results below the smallest normal number become 0.
struct FromFixedPoint {
  Tensor sums;    // i64 [n]
  Tensor values;  // f32 [n]
  std::int64_t place = 0;
};

}  // namespace tutti
