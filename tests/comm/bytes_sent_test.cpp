#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"
#include "support/mpi_world.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace tutti {
namespace {

// Compares the payload bytes that the ring counts on each rank with those computed from the shard sizes.
class BytesSent : public testing::Test {
 protected:
  std::uint64_t length_of(const std::vector<std::int64_t>& bounds, std::int64_t rank) const {
    const auto at = static_cast<std::size_t>(rank % ranks_);
    return static_cast<std::uint64_t>(bounds[at + 1] - bounds[at]);
  }

  const std::int64_t ranks_ = test_world().size();
  const std::int64_t rank_ = test_world().rank();
  std::unique_ptr<Communicator> ring_ = make_mpi_communicator(test_world(), {.algorithm = AllReduceAlgorithm::ring});
  IdleStream stream_;
};

TEST_F(BytesSent, OfASharedSumAreThoseOfAReduceScatterAndAnAllGather) {
  std::uint64_t expected = 0;
  // Multiple pieces, few elements, and no elements on some ranks.
  for (const std::int64_t length : {std::int64_t{0}, ranks_ - 1, std::int64_t{300'011}}) {
    for (const std::int64_t power : {1, 3}) {
      std::vector<std::int64_t> bounds;
      const std::int64_t all = power == 1 ? ranks_ : ranks_ * ranks_ * ranks_;
      for (std::int64_t r = 0; r <= ranks_; ++r) bounds.push_back((power == 1 ? r : r * r * r) * length / all);
      std::vector<std::int64_t> values(static_cast<std::size_t>(length));
      std::vector<float> results(values.size());
      ring_->reduce_scatter_gather({.values = tensor_over(values), .bounds = bounds, .results = tensor_over(results)},
                                   stream_);
      ring_->finish(stream_);
      if (ranks_ > 1) {
        expected += 8 * (values.size() - length_of(bounds, rank_));
        expected += 4 * (values.size() - length_of(bounds, rank_ + 1));
      }
      EXPECT_EQ(ring_->bytes_sent(), expected) << length << " elements, shares as powers of " << power;
    }
  }
}

TEST_F(BytesSent, ByARootGrowWithTheRanksAndByTheOthersDoNot) {
  std::vector<float> values(3011);
  ring_->reduce_to_root(tensor_over(values), stream_);
  ring_->finish(stream_);
  EXPECT_EQ(ring_->bytes_sent(), rank_ == 0 ? 0U : 4 * 3011U);
  ring_->broadcast(tensor_over(values), stream_);
  ring_->finish(stream_);
  EXPECT_EQ(ring_->bytes_sent(), (rank_ == 0 ? static_cast<std::uint64_t>(ranks_ - 1) : 1) * 4 * 3011U);
}

}  // namespace
}  // namespace tutti
