#include "nn/pass_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace tutti {
namespace {

std::vector<BlockLifetime> random_blocks(unsigned seed, std::size_t count) {
  std::mt19937 random(seed);
  std::vector<BlockLifetime> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    const int begin = static_cast<int>(random() % 40);
    blocks.push_back({.bytes = random() % 1000, .begin = begin, .end = begin + static_cast<int>(random() % 10)});
  }
  return blocks;
}

// The largest number of bytes that are alive at one time, which is the least size of a plan.
std::size_t greatest_demand(std::span<const BlockLifetime> blocks) {
  std::size_t greatest = 0;
  for (const BlockLifetime& start : blocks) {
    std::size_t alive = 0;
    for (const BlockLifetime& block : blocks) {
      if (block.begin <= start.begin && start.begin <= block.end) alive += MemoryPlan(std::span(&block, 1)).bytes();
    }
    greatest = std::max(greatest, alive);
  }
  return greatest;
}

TEST(MemoryPlan, NeverLetsBlocksOverlapThatAreAliveAtOnce) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const auto blocks = random_blocks(seed, 60);
    const MemoryPlan plan(blocks);
    EXPECT_GE(plan.bytes(), greatest_demand(blocks));
    for (std::size_t a = 0; a < blocks.size(); ++a) {
      EXPECT_EQ(plan.offset(a) % MemoryPlan::kAlignment, 0u);
      EXPECT_LE(plan.offset(a) + blocks[a].bytes, plan.bytes());
      for (std::size_t b = 0; b < a; ++b) {
        const bool together = blocks[a].begin <= blocks[b].end && blocks[b].begin <= blocks[a].end;
        const bool apart =
            plan.offset(a) + blocks[a].bytes <= plan.offset(b) || plan.offset(b) + blocks[b].bytes <= plan.offset(a);
        EXPECT_TRUE(!together || apart) << "seed " << seed << ": blocks " << a << " and " << b;
      }
    }
  }
}

TEST(MemoryPlan, LetsSuccessiveBlocksShareMemory) {
  const MemoryPlan plan(std::vector<BlockLifetime>{{128, 0, 1}, {128, 2, 3}, {64, 1, 2}});
  EXPECT_EQ(plan.offset(0), plan.offset(1));
  EXPECT_EQ(plan.bytes(), 192u);
}

TEST(MemoryPlan, ReservesABlockUntilTheEndOfItsLifetime) {
  const MemoryPlan plan(std::vector<BlockLifetime>{{64, 0, 2}, {64, 2, 3}});
  EXPECT_NE(plan.offset(0), plan.offset(1));
}

TEST(MemoryPlan, OfAChainTakesNoMoreThanIsAliveAtOnce) {
  std::vector<BlockLifetime> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back({.bytes = 64u << (i % 5), .begin = i, .end = i + 1});
  EXPECT_EQ(MemoryPlan(blocks).bytes(), greatest_demand(blocks));
}

// Activations that wait for their layer's backward, and gradients that pass from layer to layer.
TEST(MemoryPlan, OfATrainingStepTakesNoMoreThanIsAliveAtOnce) {
  constexpr int kLayers = 30;
  std::vector<BlockLifetime> blocks;
  for (int i = 0; i < kLayers; ++i) {
    const std::size_t bytes = 4096u >> (i / 8);
    blocks.push_back({.bytes = bytes, .begin = i, .end = 2 * kLayers - i});
    blocks.push_back({.bytes = bytes, .begin = 2 * kLayers - i - 1, .end = 2 * kLayers - i});
  }
  EXPECT_EQ(MemoryPlan(blocks).bytes(), greatest_demand(blocks));
}

TEST(MemoryPlan, OfNothingIsEmpty) { EXPECT_EQ(MemoryPlan(std::vector<BlockLifetime>{}).bytes(), 0u); }

}  // namespace
}  // namespace tutti
