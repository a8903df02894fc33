#include "tutti/backend/cuda_library.hpp"

#include "backend/fixed_point_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cuda, FixedPointContract,
                         ::testing::Values([] { return tutti_cuda_library().make_backend({}); }));

// Slices that many blocks of a kernel share, and blocks that many slices share.
TEST(CudaFixedPoint, HasTheCpusBitsInAllBlocksOfLongRequests) {
  std::vector<FixedPointBlock::Slice> slices;
  Floats values;
  std::vector<std::int64_t> places{0};
  for (const std::int64_t length : {30'000, 16, 16, 3, 4'096, 1, 64, 64, 64, 12'288, 8'191, 5, 20'001}) {
    const auto number = static_cast<int>(slices.size());
    slices.push_back({length, 30 - 5 * number});
    const auto drawn = random_floats(length, "slice " + std::to_string(number), std::ldexp(1.0, 5 * number));
    values.insert(values.end(), drawn.begin(), drawn.end());
    places.push_back(std::ssize(values) - 1);
  }
  const std::int64_t end = places.back() - 1;
  Device cpu(make_cpu_backend());
  Device cuda(tutti_cuda_library().make_backend({}));
  for (const std::int64_t begin : places) {
    if (begin > end) continue;
    FixedPointBlock expected(cpu, slices);
    FixedPointBlock got(cuda, slices);
    for (const bool first : {true, false}) {
      expected.add(values, first, begin, end);
      got.add(values, first, begin, end);
    }
    EXPECT_EQ(got.sums(), expected.sums()) << begin;
    EXPECT_EQ(got.largest(), expected.largest()) << begin;
    EXPECT_TRUE(same_bits(got.values(), expected.values())) << begin;
  }
}

}  // namespace
}  // namespace tutti::testing_support
