#include "tutti/base/denormals.hpp"

#include "backend/fixed_point_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, FixedPointContract, ::testing::Values([] { return make_cpu_backend(); }));

TEST(CpuFixedPoint, GivesTheSameBitsWithDenormalNumbersFlushed) {
  Device device(make_cpu_backend());
  Floats values = random_floats(1000, "values", 1e-36);
  for (float& value : values) value = std::abs(value) < kSmallestNormal ? kSmallestNormal : value;
  const auto summed = [&](std::uint64_t mode, std::int32_t exponent) {
    FixedPointBlock block(device, {{static_cast<std::int64_t>(values.size()), exponent}});
    set_denormal_mode(mode);
    block.add(values, true);
    block.add(values, false);
    std::pair result(block.sums(), block.values());
    set_denormal_mode(0);
    return result;
  };
  for (const std::int32_t exponent : {-900, 126, 130, 160, 178}) {
    const auto [sums, read] = summed(0, exponent);
    for (const std::uint64_t mode : flushing_modes()) {
      const auto [flushed_sums, flushed_read] = summed(mode, exponent);
      EXPECT_EQ(flushed_sums, sums) << exponent;
      EXPECT_TRUE(same_bits(flushed_read, read)) << exponent;
    }
  }
}

}  // namespace
}  // namespace tutti::testing_support
