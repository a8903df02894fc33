#pragma once
// Elementary functions with the same bits on any machine: plain IEEE additions, products and quotients only, so that
// golden digests do not depend on the C library. Errors are a few units in the last place.

namespace tutti {

// Natural logarithm of a positive finite normal number.
double portable_log(double x);
// e to the power of x; 0 and infinity where that is beyond a double.
double portable_exp(double x);
// cos(pi * x) for |x| <= 1.
double portable_cospi(double x);
// The standard normal quantile of 0 < p < 1 (Wichura's algorithm AS 241).
double portable_normal_quantile(double p);

}  // namespace tutti
