#include "tutti/base/portable_math.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace tutti {
namespace {

double polynomial(std::span<const double> coefficients, double x) {
  double value = 0;
  for (auto c = coefficients.rbegin(); c != coefficients.rend(); ++c) value = value * x + *c;
  return value;
}

// Of degree 13, within 4e-18 of the exponential for |x| < 0.347. Pairs of terms, then pairs of these: the additions of
// a pair do not wait for those of the others.
double exponential_series(double x) {
  constexpr double k4 = 1.0 / 24, k5 = 1.0 / 120, k6 = 1.0 / 720, k7 = 1.0 / 5040, k8 = 1.0 / 40320, k9 = 1.0 / 362880;
  constexpr double k10 = 1.0 / 3628800, k11 = 1.0 / 39916800, k12 = 1.0 / 479001600, k13 = 1.0 / 6227020800;
  const double x2 = x * x;
  const double x4 = x2 * x2;
  const double from_2 = (0.5 + x * (1.0 / 6)) + x2 * (k4 + x * k5);
  const double from_6 = (k6 + x * k7) + x2 * (k8 + x * k9);
  const double from_10 = (k10 + x * k11) + x2 * (k12 + x * k13);
  return 1 + (x + x2 * (from_2 + x4 * (from_6 + x4 * from_10)));
}

double quotient(std::span<const double> above, std::span<const double> below, double x) {
  return polynomial(above, x) / polynomial(below, x);
}

}  // namespace

double portable_log(double x) {
  constexpr double kLn2 = 0.693147180559945309417;
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (!(x > 0)) return x == 0 ? -kInfinity : std::numeric_limits<double>::quiet_NaN();
  if (x == kInfinity) return x;
  if (x < std::numeric_limits<double>::min()) return portable_log(x * 0x1p54) - 54 * kLn2;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>((bits >> 52) & 0x7FF) - 1022;
  double mantissa = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | (std::uint64_t{1022} << 52));
  if (mantissa < kSqrtHalf) {
    mantissa *= 2;
    --exponent;
  }
  const double s = (mantissa - 1) / (mantissa + 1);
  const double s2 = s * s;
  double series = 0;
  for (int k = 23; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
  return exponent * kLn2 + 2 * s * series;
}

double portable_exp(double x) {
  constexpr double kLn2High = 0x1.62e42feep-1;  // few enough bits that its product with `exponent` is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  if (!(x >= -746)) return x < 0 ? 0 : x;  // or NaN
  if (x > 710) return std::numeric_limits<double>::infinity();
  const int exponent = static_cast<int>(x * 1.44269504088896340736 + (x < 0 ? -0.5 : 0.5));
  const double rest = (x - exponent * kLn2High) - exponent * kLn2Low;
  const double series = exponential_series(rest);
  // In two factors, as one of them may be no normal number. Only the last product is rounded.
  const auto two_to = [](int power) { return std::bit_cast<double>(static_cast<std::uint64_t>(power + 1023) << 52); };
  const int half = exponent / 2;
  return series * two_to(half) * two_to(exponent - half);
}

double portable_power(double base, std::int64_t exponent) {
  double power = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) power *= base;
    base *= base;
  }
  return power;
}

double portable_cospi(double x) {
  constexpr double kPi = 3.14159265358979323846;
  double y = x < 0 ? -x : x;
  double sign = 1;
  if (y > 0.5) {
    y = 1 - y;
    sign = -1;
  }
  const double z = (y * kPi) * (y * kPi);
  double series = 1;
  for (int k = 22; k >= 2; k -= 2) series = 1 - series * z / (k * (k - 1));
  return sign * series;
}

double portable_normal_quantile(double p) {
  constexpr std::array kNearA{3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                              1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                              3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr std::array kNearB{1.0,
                              4.2313330701600911252e+1,
                              6.8718700749205790830e+2,
                              5.3941960214247511077e+3,
                              2.1213794301586595867e+4,
                              3.9307895800092710610e+4,
                              2.8729085735721942674e+4,
                              5.2264952788528545610e+3};
  constexpr std::array kMidC{1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                             3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                             2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr std::array kMidD{1.0,
                             2.05319162663775882187e0,
                             1.67638483018380384940e0,
                             6.89767334985100004550e-1,
                             1.48103976427480074590e-1,
                             1.51986665636164571966e-2,
                             5.47593808499534494600e-4,
                             1.05075007164441684324e-9};
  constexpr std::array kFarE{6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                             2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                             2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr std::array kFarF{1.0,
                             5.99832206555887937690e-1,
                             1.36929880922735805310e-1,
                             1.48753612908506148525e-2,
                             7.86869131145613259100e-4,
                             1.84631831751005468180e-5,
                             1.42151175831644588870e-7,
                             2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (q >= -0.425 && q <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * quotient(kNearA, kNearB, r);
  }
  const double tail = q < 0 ? p : 1 - p;
  const double r = std::sqrt(-portable_log(tail));
  const double value = r <= 5 ? quotient(kMidC, kMidD, r - 1.6) : quotient(kFarE, kFarF, r - 5);
  return q < 0 ? -value : value;
}

}  // namespace tutti
