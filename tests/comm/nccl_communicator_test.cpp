#include "tutti/comm/nccl_library.hpp"

#include "gpu_of_rank.hpp"
#include "shared_sums_contract.hpp"

#include <gtest/gtest.h>

#include <string>

namespace tutti {
namespace {

std::unique_ptr<Communicator> make_nccl(World& world, const NcclOptions& options) {
  return tutti_nccl_library().make_communicator(world, options);
}

const auto communicators = testing::Values(
    CommunicatorCase{"nccl", test_world, [](World& w) { return make_nccl(w, gpu_of_rank()); }, backend_of_rank});
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, communicators, case_name);
INSTANTIATE_TEST_SUITE_P(Nccl, SharedSumContract, communicators, case_name);

class NcclCommunicator : public testing::Test {
 protected:
  std::unique_ptr<Stream> stream_ = backend_of_rank().make_stream();
};

TEST_F(NcclCommunicator, CountsWhatARingSends) {
  const auto communicator = make_nccl(test_world(), gpu_of_rank());
  const Buffer values = communicator->allocate(4 * 1200);
  communicator->all_reduce_sum(values.view({1200}, ElementType::f32), *stream_);
  communicator->finish(*stream_);
  stream_->synchronize();
  const auto ranks = static_cast<std::uint64_t>(test_world().size());
  EXPECT_EQ(communicator->bytes_sent(), 2 * (ranks - 1) * 4 * 1200 / ranks);
}

TEST_F(NcclCommunicator, NamesItselfAndItsVersion) {
  EXPECT_TRUE(
      make_nccl(test_world(), gpu_of_rank())->description().starts_with("NCCL " + tutti_nccl_library().version()));
}

}  // namespace
}  // namespace tutti
