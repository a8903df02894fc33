#include "tutti/comm/nccl_library.hpp"

#include "gpu_of_rank.hpp"
#include "shared_sums_contract.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace tutti {
namespace {

std::unique_ptr<Communicator> make_nccl(World& world, const NcclOptions& options) {
  return tutti_nccl_library().make_communicator(world, options);
}

// On a GPU, NCCL takes 1.5 s for each communicator; the stand-in makes one for every test.
const bool kIsOnGpu = std::getenv("TUTTI_STANDIN_DEVICES") == nullptr;
const auto communicators = testing::Values(CommunicatorCase{
    "nccl", test_world, [](World& w) { return make_nccl(w, gpu_of_rank()); }, backend_of_rank, kIsOnGpu});
INSTANTIATE_TEST_SUITE_P(Nccl, CommunicatorContract, communicators, case_name);
INSTANTIATE_TEST_SUITE_P(Nccl, SharedSumContract, communicators, case_name);

class NcclCommunicator : public testing::Test {
 protected:
  std::unique_ptr<Stream> stream_ = backend_of_rank().make_stream();
};

TEST_F(NcclCommunicator, CountsWhatARingSendsAndWhatGoesToAndFromTheFirstRank) {
  const auto communicator = make_nccl(test_world(), gpu_of_rank());
  const Buffer memory = communicator->allocate(4 * 1200);
  const Tensor values = memory.view({1200}, ElementType::f32);
  const auto sent_by = [&](const auto& operation) {
    const std::uint64_t before = communicator->bytes_sent();
    operation();
    communicator->finish(*stream_);
    stream_->synchronize();
    return communicator->bytes_sent() - before;
  };
  const auto ranks = static_cast<std::uint64_t>(test_world().size());
  const bool is_first = communicator->rank() == 0;
  const bool is_last = communicator->rank() + 1 == communicator->size();
  std::vector<std::int64_t> bounds(ranks + 1, 1200);  // rank 0 owns all elements
  bounds.front() = 0;
  const std::uint64_t summing = is_first ? 0 : values.bytes();
  const std::uint64_t passing_on = is_last ? 0 : values.bytes();
  EXPECT_EQ(sent_by([&] { communicator->all_reduce(values, *stream_); }), 2 * (ranks - 1) * values.bytes() / ranks);
  EXPECT_EQ(sent_by([&] { communicator->reduce_scatter_gather({values, bounds, {}, {}}, *stream_); }), summing);
  EXPECT_EQ(sent_by([&] {
              communicator->reduce_scatter_gather({values, bounds, {}, values}, *stream_);
            }),
            summing + passing_on);
  EXPECT_EQ(sent_by([&] { communicator->reduce_to_root(values, *stream_); }), is_first ? 0 : values.bytes());
  EXPECT_EQ(sent_by([&] { communicator->broadcast(values, *stream_); }), is_first ? (ranks - 1) * values.bytes() : 0);
}

TEST_F(NcclCommunicator, SumsAtTheFirstRankPieceByPiece) {
  const auto communicator = make_nccl(test_world(), gpu_of_rank());
  std::vector<float> values = whole_numbers<float>((std::int64_t{2} << 20) + 7, communicator->rank(), 1);
  const Buffer memory = communicator->allocate(values.size() * sizeof(float));
  const Tensor tensor = memory.view({std::ssize(values)}, ElementType::f32);
  backend_of_rank().copy(*stream_, tensor, tensor_over(values));
  communicator->reduce_to_root(tensor, *stream_);
  communicator->broadcast(tensor, *stream_);
  communicator->finish(*stream_);
  backend_of_rank().copy(*stream_, tensor_over(values), tensor);
  stream_->synchronize();
  EXPECT_TRUE(equal_values(values, sum_of_whole_numbers<float>(std::ssize(values), communicator->size(), 1)));
}

TEST_F(NcclCommunicator, NamesItselfAndItsVersion) {
  EXPECT_TRUE(
      make_nccl(test_world(), gpu_of_rank())->description().starts_with("NCCL " + tutti_nccl_library().version()));
}

}  // namespace
}  // namespace tutti
