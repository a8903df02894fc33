#include "gpu_of_rank.hpp"
#include "standin/control.hpp"
#include "summed_values.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

struct RemovedWaitsCase {
  std::string name;
  std::function<std::unique_ptr<Communicator>()> make;
};

// Sums must run after the work that produces their values and before the work that uses them. Without any one of these
// waits, some order of the device's work gives a wrong result.
class RemovedWaits : public testing::TestWithParam<RemovedWaitsCase> {
 protected:
  static constexpr std::int64_t kLength = 100;

  // True if the sum is correct on all ranks.
  bool sums_correctly() {
    World& world = test_world();
    std::vector<float> mine = whole_numbers<float>(kLength, world.rank(), 3);
    std::vector<float> sums(mine.size());
    const Tensor values = block_.view({kLength}, ElementType::f32);
    backend_.fill_zero(*stream_, values);
    backend_.copy(*stream_, values, tensor_over(mine));
    communicator_->all_reduce(values, *stream_);
    communicator_->finish(*stream_);
    backend_.copy(*stream_, tensor_over(sums), values);
    stream_->synchronize();
    return world.all_true(sums == sum_of_whole_numbers<float>(kLength, world.size(), 3));
  }

  bool is_right_in_all_orders(int ignored_wait) {
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
      standin::set_order(seed);
      standin::ignore_wait(ignored_wait);
      const std::int64_t before = standin::waits_so_far();
      const bool right = sums_correctly();
      most_waits_ = std::max(most_waits_, static_cast<int>(standin::waits_so_far() - before));
      standin::ignore_wait(0);
      if (!right) return false;
    }
    return true;
  }

  Backend& backend_ = backend_of_rank();
  std::unique_ptr<Communicator> communicator_ = GetParam().make();
  std::unique_ptr<Stream> stream_ = backend_.make_stream();
  Buffer block_ = communicator_->allocate(kLength * sizeof(float));
  int most_waits_ = 0;  // of one sum in any order: a sum whose end is seen in time needs no wait
};

TEST_P(RemovedWaits, AreNoticed) {
  EXPECT_TRUE(is_right_in_all_orders(0));
  const int waits = most_waits_;
  EXPECT_GE(waits, 2);
  for (int wait = 1; !test_world().all_true(wait > waits); ++wait) {
    EXPECT_FALSE(is_right_in_all_orders(wait)) << "wait " << wait;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Of, RemovedWaits,
    testing::Values(
        RemovedWaitsCase{"nccl", [] { return tutti_nccl_library().make_communicator(test_world(), gpu_of_rank()); }},
        RemovedWaitsCase{
            "staged",
            [] { return make_staged_communicator(backend_of_rank(), make_mpi_communicator(test_world(), {})); }}),
    [](const testing::TestParamInfo<RemovedWaitsCase>& which) { return which.param.name; });

}  // namespace
}  // namespace tutti
