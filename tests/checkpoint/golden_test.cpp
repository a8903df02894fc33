#include "tutti/checkpoint/checkpoint_store.hpp"

#include "checkpoint/sample_state.hpp"
#include "checkpoint/state_equality.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(GoldenCheckpoint, OfAnEarlierBuildCountsAndLoadsBitForBit) {
  const auto world = make_solo_world();
  const auto newest = CheckpointStore(TUTTI_GOLDEN_FOLDER).newest(*world, Log{});
  ASSERT_TRUE(newest.has_value());
  expect_equal_bits(load_checkpoint(*newest), sample_state());
}

}  // namespace
}  // namespace tutti
