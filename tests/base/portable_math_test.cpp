#include "tutti/base/portable_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

namespace tutti {
namespace {

constexpr double kInfinity = HUGE_VAL;

// The difference from the true value, in units of the last place that double has there.
double units_off(double got, long double truth) {
  const double near = static_cast<double>(truth);
  const double unit = std::nextafter(std::abs(near), kInfinity) - std::abs(near);
  return static_cast<double>(std::abs(static_cast<long double>(got) - truth)) / unit;
}

struct RandomNumbers {
  std::mt19937_64 bits{1};
  double any_positive() { return std::bit_cast<double>(bits() >> 1); }  // or NaN
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
};

TEST(PortableMath, LogarithmIsWithinThreeUnits) {
  RandomNumbers random;
  double most = 0;
  for (int i = 0; i < 500'000; ++i) {
    const double anywhere = random.any_positive();
    for (const double x : {std::isnan(anywhere) ? 1 : anywhere, 4 * random.uniform(), 1 + 0x1p-20 * random.uniform(),
                           1 + 999 * random.uniform()}) {
      if (x == 0 || x == 1 || x == kInfinity) continue;
      most = std::max(most, units_off(portable_log(x), std::log(static_cast<long double>(x))));
    }
  }
  EXPECT_LT(most, 3);
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_EQ(portable_log(0.0), -kInfinity);
  EXPECT_EQ(portable_log(-0.0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  for (const double x : {-1.0, -kInfinity, static_cast<double>(NAN)}) EXPECT_TRUE(std::isnan(portable_log(x)));
}

TEST(PortableMath, ExponentialIsWithinOneUnit) {
  RandomNumbers random;
  double most = 0;
  double most_of_denormal = 0;
  for (int i = 0; i < 500'000; ++i) {
    for (const double x : {1418 * random.uniform() - 708, 2 * random.uniform() - 1, -30 * random.uniform(),
                           0x1p-30 * random.uniform()}) {
      most = std::max(most, units_off(portable_exp(x), std::exp(static_cast<long double>(x))));
    }
    const double low = -708 - 40 * random.uniform();
    most_of_denormal =
        std::max(most_of_denormal, units_off(portable_exp(low), std::exp(static_cast<long double>(low))));
  }
  EXPECT_LT(most, 1.1);
  EXPECT_LT(most_of_denormal, 1.6);  // rounded twice
  for (const double x : {0.0, -0.0, 0x1p-60, -0x1p-60, 5e-324}) EXPECT_EQ(portable_exp(x), 1.0);
  for (const double x : {-746.0, -1e9, -1e300, -kInfinity}) EXPECT_EQ(portable_exp(x), 0.0);
  for (const double x : {709.79, 710.1, 1e9, 1e300, kInfinity}) EXPECT_EQ(portable_exp(x), kInfinity);
  EXPECT_NEAR(portable_exp(709.78) / std::exp(709.78), 1, 1e-15);
  EXPECT_TRUE(std::isnan(portable_exp(NAN)));
}

TEST(PortableMath, PowerIsWithinAUnitPerFactor) {
  for (const double base : {0.9, 0.999, 1.0, 0.0, 0.5, 1.5, 0.99999}) {
    for (const std::int64_t exponent : {0, 1, 2, 3, 10, 100, 1000, 1023}) {
      const long double truth = std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
      const double power = portable_power(base, exponent);
      EXPECT_NEAR(power, static_cast<double>(truth), power * 0x1p-53 * static_cast<double>(exponent)) << base;
    }
  }
  EXPECT_EQ(portable_power(0.0, 0), 1.0);
  EXPECT_EQ(portable_power(0.9, std::int64_t{1} << 62), 0.0);
}

TEST(PortableMath, CosineIsWithinAFewUnitsOfTheLibrarys) {
  for (double x = -1; x <= 1; x += 1.0 / 1024) EXPECT_NEAR(portable_cospi(x), std::cos(M_PI * x), 1e-15) << x;
  EXPECT_EQ(portable_cospi(0.0), 1.0);
  EXPECT_EQ(portable_cospi(1.0), -1.0);
}

TEST(PortableMath, NormalQuantileInvertsTheDistributionFunction) {
  for (double p = 1e-12; p < 1; p += p < 0.01 ? p : 0.003) {
    const double x = portable_normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)), p, 1e-13 + 1e-10 * p) << p;
  }
  EXPECT_EQ(portable_normal_quantile(0.5), 0.0);
  EXPECT_DOUBLE_EQ(portable_normal_quantile(0.9), -portable_normal_quantile(0.1));
}

}  // namespace
}  // namespace tutti
