#pragma once
// Elementary functions with the same bits on any machine: plain IEEE sums, products, quotients and square roots only.
// The C library has other code for each kind of processor. Errors are a few units in the last place.

#include <cstdint>

namespace tutti {

// Natural logarithm; -infinity of 0, NaN of negative numbers.
double portable_log(double x);
// e to the power of x; 0 and infinity where that is beyond a double.
double portable_exp(double x);
// By repeated squaring, for an exponent of 0 or more.
double portable_power(double base, std::int64_t exponent);
// cos(pi * x) for |x| <= 1.
double portable_cospi(double x);
// The standard normal quantile of 0 < p < 1 (Wichura's algorithm AS 241).
double portable_normal_quantile(double p);

}  // namespace tutti
