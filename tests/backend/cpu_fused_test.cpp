// The products and sums of processors without fused operations have the bits of those with them. Registered where there
// are some.
#include "tutti/base/bf16.hpp"
#include "tutti/base/denormals.hpp"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>

namespace tutti::testing_support {
namespace {

namespace sse2 {
#include "backend/cpu/x86/registers_sse2.inc"
}  // namespace sse2
using sse2::Floats;
using sse2::kWidth;

[[gnu::target("fma")]] Floats fused_by_instruction(const Floats& a, const Floats& b, const Floats& c) {
  return reinterpret_cast<Floats>(
      _mm_fmadd_ps(reinterpret_cast<__m128>(a), reinterpret_cast<__m128>(b), reinterpret_cast<__m128>(c)));
}

struct Operands {
  Floats a, b, c;
};

class Modes : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { set_denormal_mode(GetParam() ? flushing_modes().back() : 0); }
  void TearDown() override { set_denormal_mode(0); }
};

// Of NaN, bits may differ.
bool are_same(const Floats& one, const Floats& other) {
  for (int i = 0; i < kWidth; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(one[i]);
    if (bits != std::bit_cast<std::uint32_t>(other[i]) && !(std::isnan(one[i]) && std::isnan(other[i]))) return false;
  }
  return true;
}

::testing::AssertionResult is_fused(const Operands& of) {
  const Floats expected = fused_by_instruction(of.a, of.b, of.c);
  if (are_same(sse2::fused(of.a, of.b, of.c), expected) && are_same(sse2::fused_by_odd(of.a, of.b, of.c), expected)) {
    return ::testing::AssertionSuccess();
  }
  auto failure = ::testing::AssertionFailure() << std::hexfloat;
  for (int i = 0; i < kWidth; ++i) failure << of.a[i] << " * " << of.b[i] << " + " << of.c[i] << "\n";
  return failure;
}

float with_sign(float magnitude, bool negative) { return negative ? -magnitude : magnitude; }

// Random numbers, of which one in four has few bits, and exponents for which sums are halfway, denormal or cancelled.
class Random {
 public:
  Operands operands() {
    Operands of;
    for (int i = 0; i < kWidth; ++i) {
      const int exponent = below(4) == 0 ? -120 - below(32) : below(240) - 120;  // of the product
      const int of_a = exponent / 2 + below(40) - 20;
      of.a[i] = number(of_a);
      of.b[i] = number(exponent - of_a);
      const double product = static_cast<double>(of.a[i]) * static_cast<double>(of.b[i]);
      switch (below(4)) {
        case 0:
          of.c[i] = std::bit_cast<float>(static_cast<std::uint32_t>(numbers_()));
          break;
        case 1:
          of.c[i] = near(-product);
          break;
        case 2:
          of.c[i] = near(with_sign(0x1p-126f, below(2) == 0) - product);
          break;
        default:
          of.c[i] = number(exponent + below(60) - 30);
      }
    }
    return of;
  }

 private:
  int below(int count) { return static_cast<int>(numbers_() % static_cast<std::uint64_t>(count)); }
  float number(int exponent) {
    std::uint32_t bits = static_cast<std::uint32_t>(numbers_()) & 0x807FFFFF;
    if (below(4) == 0) bits &= 0xFFF80000;
    return std::ldexp(std::bit_cast<float>(bits | 0x3F800000), exponent);
  }
  float near(double value) {
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) +
                                static_cast<std::uint32_t>(below(8) - 4));
  }

  std::mt19937_64 numbers_{1};
};

TEST_P(Modes, GiveTheBitsOfTheInstructionForRandomNumbers) {
  Random random;
  for (int i = 0; i < 1'000'000; ++i) ASSERT_TRUE(is_fused(random.operands()));
}

// (1 + x) * (1 - x) is less than 1, but not by any bit of f64 that a sum with a greater number keeps.
TEST_P(Modes, GiveTheBitsOfTheInstructionForProductsNextToHalfOfTheLastBit) {
  for (int exponent = -152; exponent <= -124; ++exponent) {
    for (int x = 1; x < 16; ++x) {
      for (std::uint32_t addend = 0; addend <= 0x00800010; addend += 1 + addend / 32) {
        Operands of;
        for (int i = 0; i < kWidth; ++i) {
          const float above = 1 + std::ldexp(static_cast<float>(x), -23);
          const float below = 1 - std::ldexp(static_cast<float>(x), i % 2 == 0 ? -23 : -24);
          of.a[i] = with_sign(std::ldexp(above, -62), i / 2 == 0);
          of.b[i] = std::ldexp(below, exponent + 62);
          of.c[i] = std::bit_cast<float>(addend);
        }
        ASSERT_TRUE(is_fused(of));
      }
    }
  }
}

TEST_P(Modes, GiveTheBitsOfTheInstructionAroundTheLeastNormalNumber) {
  for (int exponent = -180; exponent <= -120; ++exponent) {
    for (std::uint32_t mantissa = 0; mantissa < 256; ++mantissa) {
      for (std::uint32_t apart = 0; apart <= 40; ++apart) {
        Operands of;
        for (int i = 0; i < kWidth; ++i) {
          of.a[i] = with_sign(0x1p-60f, i / 2 == 0);
          of.b[i] = std::ldexp(std::bit_cast<float>(0x3F800000 + mantissa * 0x7FFF), exponent + 60);
          of.c[i] = with_sign(std::bit_cast<float>(0x00800000 - 20 + apart), i % 2 == 0);
        }
        ASSERT_TRUE(is_fused(of));
      }
    }
  }
}

TEST_P(Modes, GiveTheBitsOfTheInstructionForNumbersBeyondAll) {
  constexpr float kInfinity = HUGE_VALF;
  constexpr float kValues[] = {
      0.0f,     -0.0f,     1,        -1,        0x1p-149f,  -0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f,
      0x1p103f, -0x1p103f, 0x1p102f, kInfinity, -kInfinity, NAN,        0x1.8p64f,       0x1.555556p63f};
  for (const float a : kValues) {
    for (const float b : kValues) {
      for (const float c : kValues) {
        const Operands of{Floats{a, 1, a, 2}, Floats{b, 1, b, -3}, Floats{c, 0x1p-24f, -c, 0x1p-130f}};
        ASSERT_TRUE(is_fused(of));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(CpuFused, Modes, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "FlushingDenormals" : "KeepingDenormals"; });

}  // namespace
}  // namespace tutti::testing_support
