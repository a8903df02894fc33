#include "tutti/base/portable_math.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti {
namespace {

TEST(PortableMath, LogarithmIsWithinAFewUnitsOfTheLibrarys) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    EXPECT_NEAR(portable_log(x), std::log(x), 4e-16 * (1 + std::abs(std::log(x)))) << x;
  }
  EXPECT_EQ(portable_log(1.0), 0.0);
}

TEST(PortableMath, ExponentialIsWithinAFewUnitsOfTheLibrarys) {
  for (double x = -700; x < 709; x += 0.37) EXPECT_NEAR(portable_exp(x) / std::exp(x), 1, 1e-15) << x;
  EXPECT_EQ(portable_exp(0), 1.0);
  EXPECT_EQ(portable_exp(-1e9), 0.0);
  EXPECT_EQ(portable_exp(1e9), HUGE_VAL);
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
