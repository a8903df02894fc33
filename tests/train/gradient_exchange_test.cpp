#include "tutti/base/error.hpp"

#include "comm/arguments.hpp"
#include "train/exchange.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

// Records the element ranges of its calls in their order.
class RecordingCommunicator : public Communicator {
 public:
  explicit RecordingCommunicator(const float* block) : block_(block) {}
  int rank() const override { return 0; }
  int size() const override { return 2; }
  std::string description() const override { return "recording"; }
  Buffer allocate(std::size_t) override { return {}; }
  void all_reduce(const Tensor& values, Stream&) override {
    const std::int64_t begin = static_cast<const float*>(values.data) - block_;
    ranges.emplace_back(begin, begin + values.elements());
  }
  void reduce_scatter_gather(const ReduceScatterGather&, Stream&) override {
    throw Error(ErrorSource::internal, "unfinished");
  }
  void reduce_to_root(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  void broadcast(const Tensor&, Stream&) override { throw Error(ErrorSource::internal, "unfinished"); }
  bool progress() override { return false; }
  void finish(Stream&) override { ++finished; }
  void abort() noexcept override { ++abandoned; }
  std::uint64_t bytes_sent() const override { return 0; }

  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  int finished = 0;
  int abandoned = 0;

 private:
  const float* block_;
};

class GradientExchangeTest : public testing::Test {
 protected:
  GradientExchangeTest() {
    for (const std::int64_t elements : {10, 100, 3, 50}) {
      layout.add("layer" + std::to_string(elements) + "/weight", ParameterKind::weight, Shape{elements});
    }
    block.resize(static_cast<std::size_t>(layout.block_elements()));
    gradients = {block.data(), Shape{layout.block_elements()}, ElementType::f32, MemorySpace::host};
    communicator = std::make_unique<RecordingCommunicator>(block.data());
  }

  Ownership owned_by_everyone(std::size_t bucket_bytes) const {
    return Ownership(Owners::all, layout, make_buckets(layout, bucket_bytes), {.rank = 0, .size = 2});
  }

  ParameterLayout layout;
  std::vector<float> block;
  Tensor gradients;
  std::unique_ptr<RecordingCommunicator> communicator;
  IdleStream stream;
};

using Ranges = std::vector<std::pair<std::int64_t, std::int64_t>>;

TEST_F(GradientExchangeTest, CutsTheBlockIntoWholeSlicesOfTheRequestedSize) {
  const Ownership own = owned_by_everyone(64);
  GradientExchange sync(*communicator, own, {.gradients = gradients});
  EXPECT_EQ(own.bucket_ends(), (std::vector<std::int64_t>{16, 128, 144, 208}));
  sync.start_ready_buckets(layout.block_elements(), stream);
  EXPECT_EQ(communicator->ranges, (Ranges{{0, 16}, {16, 128}, {128, 144}, {144, 208}}));
}

TEST_F(GradientExchangeTest, StartsABucketAsSoonAsItsLastGradientIsFinal) {
  const Ownership own = owned_by_everyone(128 * sizeof(float));
  GradientExchange sync(*communicator, own, {.gradients = gradients});
  EXPECT_FALSE(sync.is_due(16));
  sync.start_ready_buckets(16, stream);
  EXPECT_TRUE(communicator->ranges.empty());
  EXPECT_TRUE(sync.is_due(128));
  sync.start_ready_buckets(128, stream);
  EXPECT_FALSE(sync.is_due(144));
  EXPECT_EQ(communicator->ranges, (Ranges{{0, 128}}));
  sync.start_ready_buckets(layout.block_elements(), stream);
  EXPECT_EQ(communicator->ranges, (Ranges{{0, 128}, {128, 208}}));
  sync.finish(stream);
  EXPECT_EQ(communicator->finished, 1);
}

TEST_F(GradientExchangeTest, LeavesOutLargeRunsOfSlicesWithoutGradients) {
  for (const int slice : {1, 2}) layout.remove_gradient(slice);
  EXPECT_EQ(owned_by_everyone(129 * sizeof(float)).bucket_ends(), (std::vector<std::int64_t>{144, 208}));
  const Ownership own = owned_by_everyone(128 * sizeof(float));
  EXPECT_EQ(own.bucket_ends(), (std::vector<std::int64_t>{16, 144, 208}));
  GradientExchange sync(*communicator, own, {.gradients = gradients});
  sync.start_ready_buckets(layout.block_elements(), stream);
  EXPECT_EQ(communicator->ranges, (Ranges{{0, 16}, {144, 208}}));
  sync.finish(stream);
  EXPECT_EQ(communicator->finished, 1);
}

TEST_F(GradientExchangeTest, RestartsWithEveryStep) {
  const Ownership own = owned_by_everyone(1 << 20);
  GradientExchange sync(*communicator, own, {.gradients = gradients});
  for (int step = 0; step < 3; ++step) {
    sync.start_ready_buckets(layout.block_elements(), stream);
    sync.finish(stream);
  }
  EXPECT_EQ(communicator->ranges, (Ranges{{0, 208}, {0, 208}, {0, 208}}));
}

TEST_F(GradientExchangeTest, AbandonsSumsWhoseStepFailed) {
  {
    const Ownership own = owned_by_everyone(64);
    GradientExchange whole(*communicator, own, {.gradients = gradients});
    whole.start_ready_buckets(layout.block_elements(), stream);
    whole.finish(stream);
  }
  EXPECT_EQ(communicator->abandoned, 0);
  {
    const Ownership own = owned_by_everyone(64);
    GradientExchange torn(*communicator, own, {.gradients = gradients});
    torn.start_ready_buckets(16, stream);
  }
  EXPECT_EQ(communicator->abandoned, 1);
}

TEST_F(GradientExchangeTest, RefusesToFinishWithGradientsMissing) {
  const Ownership own = owned_by_everyone(64);
  GradientExchange sync(*communicator, own, {.gradients = gradients});
  sync.start_ready_buckets(16, stream);
  EXPECT_THROW(sync.finish(stream), Error);
}

}  // namespace
}  // namespace tutti
