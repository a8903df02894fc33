#include "gpu_of_rank.hpp"
#include "shared_sums_contract.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

std::unique_ptr<Communicator> make_staged(World& world) {
  return make_staged_communicator(backend_of_rank(),
                                  make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring}));
}

Backend& processor() {
  static const auto backend = make_cpu_backend();
  return *backend;
}

const auto communicators = testing::Values(
    CommunicatorCase{"gpu", test_world, make_staged, backend_of_rank},
    CommunicatorCase{"gpu_with_helper_thread", test_world,
                     [](World& w) {
                       return make_staged_communicator(backend_of_rank(),
                                                       make_mpi_communicator(w, {.helper_thread = true}));
                     },
                     backend_of_rank},
    CommunicatorCase{"processor", test_world,
                     [](World& w) { return make_staged_communicator(processor(), make_mpi_communicator(w, {})); },
                     processor});
INSTANTIATE_TEST_SUITE_P(Staged, CommunicatorContract, communicators, case_name);
INSTANTIATE_TEST_SUITE_P(Staged, SharedSumContract, communicators, case_name);

// Buckets of one block, like gradients: each is reduced while the next is still being computed.
TEST(StagedCommunicator, GivesTheBitsOfTheHostsRingWithManyPendingSums) {
  World& world = test_world();
  Backend& gpu = backend_of_rank();
  const std::vector<std::int64_t> lengths{1, 30'000, 3, 59'990, 7};
  constexpr std::int64_t kAll = 90'001;

  std::vector<float> expected = rough_values(kAll, world.rank());
  const auto ring = make_mpi_communicator(world, {.algorithm = AllReduceAlgorithm::ring});
  IdleStream inline_stream;
  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    ring->all_reduce({.data = expected.data() + first, .shape = {length}}, inline_stream);
    first += length;
  }
  ring->finish(inline_stream);

  const auto communicator = make_staged(world);
  const auto stream = gpu.make_stream();
  const Buffer block = communicator->allocate(kAll * sizeof(float));
  for (int step = 0; step < 20; ++step) {
    std::vector<float> values = rough_values(kAll, world.rank());
    first = 0;
    for (const std::int64_t length : lengths) {
      const Tensor bucket = block.view({length}, ElementType::f32, static_cast<std::size_t>(first) * sizeof(float));
      gpu.copy(*stream, bucket, {.data = values.data() + first, .shape = {length}});
      communicator->all_reduce(bucket, *stream);
      first += length;
    }
    communicator->finish(*stream);
    std::vector<float> sums(kAll);
    gpu.copy(*stream, tensor_over(sums), block.view({kAll}, ElementType::f32));
    stream->synchronize();
    ASSERT_TRUE(equal_values(sums, expected)) << "step " << step;
  }
  EXPECT_EQ(communicator->bytes_sent(), 20 * ring->bytes_sent());
}

TEST(StagedCommunicator, FreesItsMemoryWhenAbandonedInTheMiddle) {
  const auto communicator = make_staged(test_world());
  const auto stream = backend_of_rank().make_stream();
  {
    const Buffer values = communicator->allocate(4000);
    // Only one rank continues.
    if (test_world().rank() == 0) communicator->all_reduce(values.view({1000}, ElementType::f32), *stream);
    communicator->abort();
  }
  EXPECT_FALSE(communicator->progress());
  test_world().barrier();
}

}  // namespace
}  // namespace tutti
