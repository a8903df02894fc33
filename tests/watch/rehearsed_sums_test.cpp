// Collectives over a slow link give the same results.

#include "tutti/watch/rehearsal.hpp"

#include "comm/summed_values.hpp"
#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace tutti::test {
namespace {

TEST(RehearsedCollectives, CompleteOverASlowLinkWithAndWithoutAHelperThread) {
  World& world = test_world();
  for (const bool helper_thread : {false, true}) {
    FaultInjector injector(Log(world.rank(), world.host(), true));
    const auto communicator = injector.wrap(make_mpi_communicator(world, {.helper_thread = helper_thread}));
    injector.begin(
        {{.kind = FaultKind::slow_link, .rank = world.size() - 1, .first_step = 1, .last_step = 9, .seconds = 0.01}},
        {});
    const Buffer memory = communicator->allocate(3 * 64);
    IdleStream stream;
    for (int step = 1; step < 10; ++step) {
      injector.on_begin({step, Phase::data});
      std::vector<Tensor> sums;
      for (std::size_t i = 0; i < 3; ++i) {
        sums.push_back(memory.view(Shape{16}, ElementType::f32, 64 * i));
        for (float& value : host_f32(sums.back())) value = static_cast<float>(world.rank() + step);
      }
      communicator->all_reduce(sums[0], stream);
      std::vector<std::int64_t> bounds(static_cast<std::size_t>(world.size()) + 1, 16);
      bounds.front() = 0;  // all of it is rank 0's
      communicator->reduce_scatter_gather({.values = sums[1], .bounds = bounds, .results = sums[1]}, stream);
      communicator->reduce_to_root(sums[2], stream);
      communicator->broadcast(sums[2], stream);
      communicator->finish(stream);
      const auto ranks = static_cast<float>(world.size());
      for (const Tensor& sum : sums) {
        for (const float value : host_f32(sum)) EXPECT_EQ(value, ranks * ((ranks - 1) / 2 + static_cast<float>(step)));
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
