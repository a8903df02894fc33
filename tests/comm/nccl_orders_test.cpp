// NCCL may add in any order. The stand-in adds in two that differ, so that whatever depends on the order is noticed.

#include "tutti/comm/nccl_library.hpp"

#include "gpu_of_rank.hpp"
#include "summed_values.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace tutti {
namespace {

template <class T>
std::vector<T> sums_of(std::vector<T> values, const char* algorithm) {
  ::setenv("NCCL_ALGO", algorithm, 1);
  const auto communicator = tutti_nccl_library().make_communicator(test_world(), gpu_of_rank());
  const auto stream = backend_of_rank().make_stream();
  const Buffer memory = communicator->allocate(values.size() * sizeof(T));
  const Tensor tensor = memory.view({std::ssize(values)}, element_type<T>());
  backend_of_rank().copy(*stream, tensor, tensor_over(values));
  communicator->all_reduce(tensor, *stream);
  communicator->finish(*stream);
  backend_of_rank().copy(*stream, tensor_over(values), tensor);
  stream->synchronize();
  ::unsetenv("NCCL_ALGO");
  return values;
}

TEST(NcclOrders, ChangeTheBitsOfFloatsWithinTheirRounding) {
  const std::vector<float> mine = rough_values(1009, test_world().rank());
  const std::vector<float> by_ring = sums_of(mine, "Ring");
  const std::vector<float> by_tree = sums_of(mine, "Tree");
  EXPECT_NE(by_ring, by_tree);
  for (std::size_t i = 0; i < mine.size(); ++i) EXPECT_NEAR(by_ring[i], by_tree[i], 2e-6) << i;
}

TEST(NcclOrders, DoNotChangeIntegers) {
  const auto mine = whole_numbers<std::int64_t>(1009, test_world().rank(), 7);
  const auto expected = sum_of_whole_numbers<std::int64_t>(1009, test_world().size(), 7);
  EXPECT_EQ(sums_of(mine, "Ring"), expected);
  EXPECT_EQ(sums_of(mine, "Tree"), expected);
}

}  // namespace
}  // namespace tutti
