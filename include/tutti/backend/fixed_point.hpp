#pragma once
// Fixed-point sums, which do not depend on the order of addition: values are rounded to whole multiples of a power of
// two, which are added as integers. Each slice of a block has its own exponent. The caller chooses it and handles
// values that are too large for it.

#include "tutti/backend/tensor.hpp"

#include <cstdint>

namespace tutti {

// Both tensors are in the processor's memory. Slices are contiguous and start at the block's first element.
struct FixedPointGrid {
  Tensor ends;       // i64 [slices], ascending: the end of each slice, exclusive
  Tensor exponents;  // i32 [slices], -900 .. 900: one unit of a slice's sums is 2^-exponent
};

// For elements offset .. offset + n - 1 of the block: sums += round(values * 2^exponent), to the nearest, ties to even.
struct ToFixedPoint {
  Tensor values;  // f32 [n]
  // i64 or i32 [n]; unspecified for values of 2^62 units or more, in i32 2^31, and values that are not finite.
  Tensor sums;
  std::int64_t offset = 0;  // of `values` in the block
  bool first = false;       // overwrite the sums instead of adding
  // i32 [slices]: atomic max with the bits of the largest |value| in each slice. Infinity compares above all finite
  // values, NaN above infinity. Concurrent calls must not touch the same slice.
  Tensor largest;
};

// values = sums * 2^-exponent, rounded from f64; results below the smallest normal number become 0.
struct FromFixedPoint {
  Tensor sums;    // i64 or i32 [n]
  Tensor values;  // f32 [n]
  std::int64_t offset = 0;
};

}  // namespace tutti
