#include "tutti/train/optimizer.hpp"

#include "backend/device_values.hpp"
#include "storage/state_equality.hpp"
#include "support/mpi_world.hpp"
#include "train/exchange.hpp"
#include "train/state_arrays.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {
namespace {

using testing_support::Device;
using testing_support::random_floats;
using testing_support::same_bits;

constexpr int kUpdates = 3;
constexpr std::size_t kOneBucket = std::size_t{1} << 30;

// The sizes are around the blocks of the norms, and padded.
ParameterLayout uneven_layout() {
  ParameterLayout layout;
  layout.add("head/bias", ParameterKind::bias, Shape{5});
  layout.add("head/weight", ParameterKind::weight, Shape{4097});
  layout.add("norm/scale", ParameterKind::scale, Shape{1});
  layout.add("conv/weight", ParameterKind::weight, Shape{20, 1000});
  layout.add("stem/weight", ParameterKind::weight, Shape{4096});
  layout.add("norm/mean", ParameterKind::mean, Shape{37});
  return layout;
}

TEST(Ownership, CutsABucketIntoEqualSharesAtBlocksOfTheNorms) {
  const ParameterLayout layout = uneven_layout();
  for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{17000}, kOneBucket}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const auto ends = make_buckets(layout, bucket_bytes);
      std::vector<int> owners(static_cast<std::size_t>(layout.block_elements()));
      for (int rank = 0; rank < ranks; ++rank) {
        const Ownership ownership(Owners::sharded, layout, ends, {rank, ranks});
        std::int64_t owned = 0;
        for (const IndexRange& range : ownership.owned()) {
          owned += range.size();
          for (std::int64_t i = range.begin; i < range.end; ++i) ++owners[static_cast<std::size_t>(i)];
          EXPECT_TRUE(std::ranges::any_of(layout.slices(),
                                          [&](const ParameterSlice& slice) {
                                            const std::int64_t within = range.begin - slice.offset;
                                            return within >= 0 && within < slice.elements() && within % kNormBlock == 0;
                                          }))
              << "element " << range.begin << " begins no block, rank " << rank << " of " << ranks;
        }
        EXPECT_LE(owned, layout.block_elements() / ranks + static_cast<std::int64_t>(ends.size()) * (kNormBlock + 16));
      }
      EXPECT_TRUE(std::ranges::all_of(owners, [](int count) { return count == 1; })) << ranks << " ranks";
    }
  }
}

TEST(Ownership, IsOfAllElementsOnEveryRankOrOnTheFirst) {
  const ParameterLayout layout = uneven_layout();
  const std::vector<IndexRange> everything{{0, layout.block_elements()}};
  for (const int rank : {0, 2}) {
    EXPECT_EQ(Ownership(Owners::all, layout, make_buckets(layout, 1), {rank, 3}).owned(), everything);
    EXPECT_EQ(Ownership(Owners::root, layout, make_buckets(layout, 1), {rank, 3}).owned(),
              rank == 0 ? everything : std::vector<IndexRange>{});
  }
}

TEST(Ownership, PlacesOwnedRangesOneAfterTheOther) {
  ParameterLayout layout;
  for (const char* name : {"a", "b"}) layout.add(name, ParameterKind::weight, Shape{2 * kNormBlock});
  const Ownership second(Owners::sharded, layout, make_buckets(layout, 1), {1, 2});
  const std::vector<IndexRange> slices{{0, 2 * kNormBlock}, {2 * kNormBlock, 4 * kNormBlock}};
  const auto pieces = second.pieces_of(slices);
  ASSERT_EQ(pieces.size(), 2U);
  EXPECT_EQ(pieces[0].elements, (IndexRange{kNormBlock, 2 * kNormBlock}));
  EXPECT_EQ(pieces[0].packed, (IndexRange{0, kNormBlock}));
  EXPECT_EQ(pieces[1].elements, (IndexRange{3 * kNormBlock, 4 * kNormBlock}));
  EXPECT_EQ(pieces[1].packed, (IndexRange{kNormBlock, 2 * kNormBlock}));
  EXPECT_EQ(pieces[1].range, 1U);
  const std::vector<IndexRange> inside{{3 * kNormBlock + 7, 3 * kNormBlock + 9}};
  ASSERT_EQ(second.pieces_of(inside).size(), 1U);
  EXPECT_EQ(second.pieces_of(inside)[0].packed, (IndexRange{kNormBlock + 7, kNormBlock + 9}));
}

struct Manner {
  OptimizerOptions options;
  Owners owners = Owners::all;
  std::size_t bucket_bytes = 1;
};

// One rank's weights and optimizer, which gets the gradients of the elements that the rank owns.
class OwnedRank {
 public:
  OwnedRank(std::unique_ptr<Communicator> communicator, const Manner& manner)
      : communicator_(std::move(communicator)),
        layout_(uneven_layout()),
        ownership_(manner.owners, layout_, make_buckets(layout_, manner.bucket_bytes),
                   {communicator_->rank(), communicator_->size()}),
        arena_(layout_, device_.backend(), communicator_->allocate(layout_.block_bytes())),
        optimizer_(make_optimizer(manner.options, parts())) {
    set_weights(random_floats(layout_.block_elements(), "weights"));
  }

  // Elements that a rank does not own are poisoned. Padding is zero.
  void step(int step) {
    std::vector<float> block(static_cast<std::size_t>(layout_.block_elements()),
                             std::numeric_limits<float>::quiet_NaN());
    for (const IndexRange& range : ownership_.owned()) {
      std::fill(block.begin() + range.begin, block.begin() + range.end, 0.0F);
    }
    for (const ParameterSlice& slice : layout_.slices()) {
      const auto values = random_floats(slice.elements(), slice.name + std::to_string(step));
      for (const OwnedPiece& own : ownership_.pieces_of(ranges_of(std::span(&slice, 1)))) {
        std::copy_n(values.begin() + own.elements.begin - slice.offset, own.elements.size(),
                    block.begin() + own.elements.begin);
      }
    }
    device_.upload(arena_.gradients(), block);
    optimizer_->set_step(device_.stream(), 0.1 / step, step, 0);
    optimizer_->apply(device_.stream(), arena_);
    gather_owned(*communicator_, ownership_, arena_.weights(), device_.stream());
  }

  std::vector<float> weights() { return device_.download<float>(arena_.weights()); }
  void set_weights(const std::vector<float>& weights) { device_.upload(arena_.weights(), weights); }
  std::vector<NamedArray> state() {
    ShardSelector all(FileShard{}, layout_, *optimizer_, false);
    return gather_state(parts(), device_.stream(), *optimizer_, all, arena_.gradients());
  }
  void set_state(const std::vector<NamedArray>& state) { restore_state(parts(), device_.stream(), *optimizer_, state); }
  std::size_t state_bytes() const {
    std::size_t bytes = 0;
    for (const OptimizerSlot& slot : optimizer_->slots()) bytes += slot.block.bytes();
    return bytes;
  }

 private:
  OptimizerContext parts() { return {device_.backend(), *communicator_, layout_, ownership_}; }

  Device device_{make_cpu_backend()};
  std::unique_ptr<Communicator> communicator_;
  ParameterLayout layout_;
  Ownership ownership_;
  ParameterArena arena_;
  std::unique_ptr<Optimizer> optimizer_;
};

std::unique_ptr<Communicator> ring_over(World& world) { return make_mpi_communicator(world, {}); }

const std::vector<OptimizerOptions> kOptimizers{
    {.momentum = 0, .weight_decay = 0.05, .clip_norm = 3},
    {.weight_decay = 0.05, .nesterov = true, .exempts_norms_and_biases = true},
    {.kind = OptimizerKind::adamw, .weight_decay = 0.1},
    {.kind = OptimizerKind::adamw, .weight_decay = 0.1, .exempts_norms_and_biases = true, .clip_norm = 3},
    {.kind = OptimizerKind::lars, .weight_decay = 0.05},
    {.kind = OptimizerKind::lars, .weight_decay = 0.05, .exempts_norms_and_biases = true, .clip_norm = 3},
};

TEST(Owners, UpdateTheirWeightsToTheBitsOfASingleRank) {
  for (const OptimizerOptions& options : kOptimizers) {
    OwnedRank alone(make_solo_communicator(), {options, Owners::all});
    for (int step = 1; step <= kUpdates; ++step) alone.step(step);
    for (const Owners owners : {Owners::all, Owners::sharded, Owners::root}) {
      for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{17000}, kOneBucket}) {
        SCOPED_TRACE(std::string(name_of(options.kind)) + ", clip " + std::to_string(options.clip_norm) + ", owners " +
                     std::to_string(static_cast<int>(owners)) + ", buckets of " + std::to_string(bucket_bytes));
        OwnedRank replica(ring_over(test_world()), {options, owners, bucket_bytes});
        for (int step = 1; step <= kUpdates; ++step) replica.step(step);
        EXPECT_TRUE(same_bits(replica.weights(), alone.weights()));
        expect_equal_bits(replica.state(), alone.state());
      }
    }
  }
}

TEST(Owners, AllocateTheStateOfTheirElementsOnly) {
  const OptimizerOptions adamw{.kind = OptimizerKind::adamw};
  const std::size_t whole = OwnedRank(make_solo_communicator(), {adamw}).state_bytes();
  EXPECT_EQ(whole, 2 * static_cast<std::size_t>(uneven_layout().trained_elements()) * sizeof(float));
  const std::size_t ranks = static_cast<std::size_t>(test_world().size());
  const auto bytes_by_rank = [&](Owners owners) {
    OwnedRank replica(ring_over(test_world()), {adamw, owners, kOneBucket});
    std::vector<std::size_t> bytes;
    for (const std::string& text : all_gather_text(test_world(), std::to_string(replica.state_bytes()))) {
      bytes.push_back(std::stoul(text));
    }
    return bytes;
  };
  std::size_t sum = 0;
  for (const std::size_t bytes : bytes_by_rank(Owners::sharded)) {
    EXPECT_LE(bytes, whole / ranks + 2 * sizeof(float) * (kNormBlock + 16));
    sum += bytes;
  }
  EXPECT_EQ(sum, whole);
  std::vector<std::size_t> at_first(ranks, 0);
  at_first[0] = whole;
  EXPECT_EQ(bytes_by_rank(Owners::root), at_first);
}

TEST(Owners, RestoreTheStateOfAnyNumberOfRanks) {
  const OptimizerOptions options{.kind = OptimizerKind::adamw, .weight_decay = 0.1, .clip_norm = 3};
  OwnedRank alone(make_solo_communicator(), {options});
  OwnedRank before(ring_over(test_world()), {options, Owners::sharded, 17000});
  for (OwnedRank* const replica : {&alone, &before}) replica->step(1);
  const auto state = before.state();
  const auto weights = before.weights();
  alone.step(2);
  for (int ranks = 1; ranks <= test_world().size(); ++ranks) {
    const auto world = test_world().split(test_world().rank() < ranks ? 0 : -1);
    if (!world) continue;
    for (const Owners owners : {Owners::all, Owners::sharded, Owners::root}) {
      OwnedRank after(ring_over(*world), {options, owners, kOneBucket});
      after.set_weights(weights);
      after.set_state(state);
      expect_equal_bits(after.state(), state);
      after.step(2);
      EXPECT_TRUE(same_bits(after.weights(), alone.weights())) << ranks << " ranks";
    }
  }
}

}  // namespace
}  // namespace tutti
