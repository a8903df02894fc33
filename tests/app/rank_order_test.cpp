#include "bench/bench.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

const std::vector<std::string> kInTurns{"a", "b", "a", "b", "a", "b", "a", "b"};
const std::vector<std::string> kUneven{"a", "a", "a", "b", "c", "c"};

TEST(RankOrder, GoesHostByHostHoweverTheLauncherPlacedTheRanks) {
  std::vector<int> positions;
  for (int rank = 0; rank < 8; ++rank) positions.push_back(RankOrder(kInTurns, rank).position());
  EXPECT_EQ(positions, (std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7}));
  const RankOrder order(kInTurns, 3);
  EXPECT_EQ(order.ranks(), 8);
  EXPECT_EQ(order.hosts(), (std::vector<std::string>{"a", "b"}));
}

TEST(RankOrder, CountsTheNodesOfTheFirstRanksAndTheRanksOfTheFirstNodes) {
  const RankOrder order(kUneven, 0);
  std::vector<int> nodes;
  for (int ranks = 1; ranks <= 6; ++ranks) nodes.push_back(order.nodes_of(ranks));
  EXPECT_EQ(nodes, (std::vector<int>{1, 1, 1, 2, 3, 3}));
  EXPECT_EQ(order.ranks_of(1), 3);
  EXPECT_EQ(order.ranks_of(2), 4);
  EXPECT_EQ(order.ranks_of(3), 6);
}

TEST(RankOrder, DoublesUpToAWholeNodeAndFromThereByNodes) {
  EXPECT_EQ(RankOrder(kInTurns, 0).counts("", ""), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(RankOrder(kUneven, 0).counts("", ""), (std::vector<int>{1, 2, 3, 4, 6}));
  EXPECT_EQ(RankOrder({"a", "a", "a"}, 0).counts("", ""), (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(RankOrder({"a", "b", "c"}, 0).counts("", ""), (std::vector<int>{1, 2, 3}));
}

TEST(RankOrder, TakesTheRequestedCounts) {
  const RankOrder order(kUneven, 0);
  EXPECT_EQ(order.counts("2,5", ""), (std::vector<int>{2, 5}));
  EXPECT_EQ(order.counts("", "1,3"), (std::vector<int>{3, 6}));
  EXPECT_EQ(order.counts("1,3", "1,2"), (std::vector<int>{1, 3, 4}));
}

TEST(RankOrder, RefusesMoreNodesThanThereAreByTheOptionsName) {
  EXPECT_THAT(thrown_by([] { RankOrder(kUneven, 0).counts("", "1,4"); }), reports(ErrorSource::usage, "--nodes 1,4"));
}

}  // namespace
}  // namespace tutti
