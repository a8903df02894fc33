#include "tutti/data/split_batch_sampler.hpp"

#include "tutti/base/error.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace tutti {
namespace {

using Samples = std::vector<std::int64_t>;

constexpr ShuffleOptions kFileOrder{Shuffle::none, 0};

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

Samples range(std::int64_t begin, std::int64_t end) {
  Samples samples(static_cast<std::size_t>(end - begin));
  std::iota(samples.begin(), samples.end(), begin);
  return samples;
}

Samples epoch_samples(const SplitBatchSampler& sampler, std::int64_t epoch) {
  Samples all;
  for (std::int64_t step = 0; step < sampler.steps(epoch); ++step) {
    const Samples share = sampler.indices(epoch, step);
    all.insert(all.end(), share.begin(), share.end());
  }
  return all;
}

template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.source() == ErrorSource::usage ? error.what() : "not a usage error";
  }
  return "accepted";
}

TEST(SplitBatchSampler, GivesEachPartADisjointShare) {
  const auto parts = SplitBatchSampler::for_parts(103, 20, 3, {0, 3}, LastBatch::keep, {Shuffle::global, 1});
  Samples all;
  for (const auto& part : parts) {
    const Samples share = epoch_samples(part, 0);
    all.insert(all.end(), share.begin(), share.end());
  }
  EXPECT_EQ(sorted(all), range(0, 103));
}

TEST(SplitBatchSampler, BalancedDrawsAllClassesAndTheSamplesOfAClassEquallyOften) {
  std::vector<std::int32_t> labels(100'000, 3);
  std::fill_n(labels.begin(), 1000, 0);
  std::fill_n(labels.begin() + 1000, 10'000, 7);
  const SplitBatchSampler sampler(std::ssize(labels), 512, 1, 0, LastBatch::keep, {Shuffle::balanced, 1, labels});
  const Samples drawn = epoch_samples(sampler, 0);
  ASSERT_EQ(drawn.size(), labels.size());
  std::map<std::int32_t, int> counts;
  std::map<std::int64_t, int> of_first_class;
  for (const std::int64_t sample : drawn) {
    const std::int32_t label = labels.at(static_cast<std::size_t>(sample));
    ++counts[label];
    if (label == 0) ++of_first_class[sample];
  }
  for (const std::int32_t label : {0, 3, 7}) EXPECT_NEAR(counts[label], 33'333, 600) << label;
  EXPECT_EQ(of_first_class.size(), 1000U);
  for (const auto& [sample, count] : of_first_class) EXPECT_NEAR(count, 33, 30) << sample;
  EXPECT_NE(epoch_samples(sampler, 1), drawn);
  EXPECT_EQ(epoch_samples(sampler, 0), drawn);
}

TEST(SplitBatchSampler, BalancedGivesEachPartItsShareOfTheSameDraws) {
  const std::vector<std::int32_t> labels{0, 0, 0, 0, 0, 0, 1, 2, 2, 0, 0};
  const ShuffleOptions rule{Shuffle::balanced, 1, labels};
  const SplitBatchSampler whole(11, 5, 1, 0, LastBatch::rollover, rule);
  const auto parts = SplitBatchSampler::for_parts(11, 5, 3, {0, 3}, LastBatch::rollover, rule);
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    for (std::int64_t step = 0; step < whole.steps(epoch); ++step) {
      Samples together;
      for (const auto& part : parts) {
        const Samples share = part.indices(epoch, step);
        together.insert(together.end(), share.begin(), share.end());
      }
      EXPECT_EQ(together, whole.indices(epoch, step)) << epoch << " " << step;
    }
  }
  EXPECT_NE(refusal([] {
              SplitBatchSampler(10, 4, 1, 0, LastBatch::keep, {Shuffle::balanced, 1});
            }).find("--shuffle balanced needs the labels"),
            std::string::npos);
}

TEST(SplitBatchSampler, KeepEndsWithAShortBatch) {
  const SplitBatchSampler sampler(10, 4, 1, 0, LastBatch::keep, kFileOrder);
  EXPECT_EQ(sampler.steps(0), 3);
  EXPECT_EQ(sampler.batch_samples(0, 2), 2);
  EXPECT_EQ(sampler.indices(0, 2), (Samples{8, 9}));
  EXPECT_EQ(sampler.remainder(0), 0);
}

TEST(SplitBatchSampler, KeepLeavesPartsEmptyWhenTheLastBatchIsShorterThanTheParts) {
  const auto parts = SplitBatchSampler::for_parts(9, 8, 4, {0, 4}, LastBatch::keep, kFileOrder);
  EXPECT_EQ(parts[0].indices(0, 1), Samples{});
  EXPECT_EQ(parts[2].indices(0, 1), Samples{});
  EXPECT_EQ(parts[3].indices(0, 1), Samples{8});
}

TEST(SplitBatchSampler, DiscardUsesWholeBatchesOnly) {
  const SplitBatchSampler sampler(10, 4, 1, 0, LastBatch::discard, kFileOrder);
  EXPECT_EQ(sampler.steps(5), 2);
  EXPECT_EQ(sampler.remainder(5), 2);
  EXPECT_EQ(epoch_samples(sampler, 5), range(0, 8));
}

TEST(SplitBatchSampler, RolloverBeginsAnEpochWithWhatTheLastOneLeft) {
  const SplitBatchSampler sampler(10, 4, 1, 0, LastBatch::rollover, kFileOrder);
  EXPECT_EQ(sampler.steps(0), 2);
  EXPECT_EQ(sampler.remainder(0), 2);
  EXPECT_EQ(sampler.steps(1), 3);
  EXPECT_EQ(sampler.indices(1, 0), (Samples{8, 9, 0, 1}));
  EXPECT_EQ(sampler.remainder(1), 0);
}

TEST(SplitBatchSampler, RolloverOrdersLeftoversAsTheEpochThatDrewThem) {
  const ShuffleOptions rule{Shuffle::global, 7};
  const SplitBatchSampler rolled(10, 4, 1, 0, LastBatch::rollover, rule);
  const SplitBatchSampler whole(10, 10, 1, 0, LastBatch::keep, rule);
  const Samples first = whole.indices(0, 0);
  const Samples second = whole.indices(1, 0);
  EXPECT_EQ(rolled.indices(1, 0), (Samples{first[8], first[9], second[0], second[1]}));
}

TEST(SplitBatchSampler, RolloverOfABatchLargerThanTheDataSetSpansEpochs) {
  const SplitBatchSampler sampler(3, 8, 1, 0, LastBatch::rollover, kFileOrder);
  EXPECT_EQ(sampler.steps(0), 0);
  EXPECT_EQ(sampler.steps(1), 0);
  EXPECT_EQ(sampler.remainder(1), 6);
  EXPECT_EQ(sampler.steps(2), 1);
  EXPECT_EQ(sampler.indices(2, 0), (Samples{0, 1, 2, 0, 1, 2, 0, 1}));
  EXPECT_EQ(sampler.remainder(2), 1);
}

TEST(SplitBatchSampler, GlobalShuffleDrawsAFreshOrderEachEpochAndEachSeed) {
  const SplitBatchSampler sampler(100, 100, 1, 0, LastBatch::keep, {Shuffle::global, 1});
  const SplitBatchSampler other(100, 100, 1, 0, LastBatch::keep, {Shuffle::global, 2});
  EXPECT_NE(sampler.indices(0, 0), sampler.indices(1, 0));
  EXPECT_NE(sampler.indices(0, 0), other.indices(0, 0));
  EXPECT_EQ(sorted(sampler.indices(1, 0)), range(0, 100));
}

TEST(SplitBatchSampler, GlobalShuffleDrawsTheSameBatchesToAnyNumberOfParts) {
  const ShuffleOptions rule{Shuffle::global, 3};
  const SplitBatchSampler one(50, 12, 1, 0, LastBatch::keep, rule);
  const auto five = SplitBatchSampler::for_parts(50, 12, 5, {0, 5}, LastBatch::keep, rule);
  for (std::int64_t step = 0; step < one.steps(2); ++step) {
    Samples together;
    for (const auto& part : five) {
      const Samples share = part.indices(2, step);
      together.insert(together.end(), share.begin(), share.end());
    }
    EXPECT_EQ(together, one.indices(2, step));
  }
}

TEST(SplitBatchSampler, PartitionShuffleKeepsEachPartInItsOwnBlock) {
  const auto parts = SplitBatchSampler::for_parts(40, 8, 4, {0, 4}, LastBatch::keep, {Shuffle::partition, 5});
  for (std::int64_t part = 0; part < 4; ++part) {
    const Samples first = epoch_samples(parts[static_cast<std::size_t>(part)], 0);
    const Samples second = epoch_samples(parts[static_cast<std::size_t>(part)], 1);
    EXPECT_NE(first, second);
    EXPECT_EQ(sorted(first), range(part * 10, (part + 1) * 10));
    EXPECT_EQ(sorted(second), range(part * 10, (part + 1) * 10));
  }
}

TEST(SplitBatchSampler, PartitionShuffleSizesBlocksByEachPartsSamples) {
  const auto parts = SplitBatchSampler::for_parts(23, 5, 2, {0, 2}, LastBatch::keep, {Shuffle::partition, 5});
  // Batches of 5, 5, 5, 5, 3 give the first part 2, 2, 2, 2, 1 of them.
  EXPECT_EQ(sorted(epoch_samples(parts[0], 0)), range(0, 9));
  EXPECT_EQ(sorted(epoch_samples(parts[1], 0)), range(9, 23));
}

TEST(SplitBatchSampler, ReachesALateEpochDirectly) {
  const ShuffleOptions rule{Shuffle::partition, 9};
  constexpr std::int64_t kLate = 1'000'000'000;
  const SplitBatchSampler sampler(60'000, 512, 8, 3, LastBatch::rollover, rule);
  const std::int64_t last = sampler.steps(kLate) - 1;
  const Samples share = sampler.indices(kLate, last);
  EXPECT_EQ(share.size(), 64u);
  EXPECT_EQ(SplitBatchSampler(60'000, 512, 8, 3, LastBatch::rollover, rule).indices(kLate, last), share);
}

TEST(SplitBatchSampler, KnowsTheSamplesBeforeAStep) {
  for (const LastBatch last : {LastBatch::keep, LastBatch::discard, LastBatch::rollover}) {
    for (const std::int64_t length : {7, 30, 103}) {
      const SplitBatchSampler sampler(length, 20, 1, 0, last);
      std::int64_t steps = 0;
      for (std::int64_t epoch = 0; epoch < 7; ++epoch) {
        EXPECT_EQ(sampler.steps_before(epoch), steps);
        std::int64_t samples = 0;
        for (std::int64_t step = 0; step < sampler.steps(epoch); ++step, ++steps) {
          EXPECT_EQ(sampler.samples_before(epoch, step), samples);
          samples += sampler.batch_samples(epoch, step);
        }
        EXPECT_EQ(sampler.samples_before(epoch, sampler.steps(epoch)), samples);
        EXPECT_EQ(sampler.carried_over(epoch + 1), last == LastBatch::rollover ? sampler.remainder(epoch) : 0);
      }
    }
  }
}

TEST(SplitBatchSampler, OfAnEmptySetHasNoSteps) {
  for (const LastBatch mode : {LastBatch::keep, LastBatch::discard, LastBatch::rollover}) {
    const SplitBatchSampler sampler(0, 4, 2, 1, mode);
    EXPECT_EQ(sampler.steps(3), 0);
    EXPECT_EQ(sampler.remainder(3), 0);
    EXPECT_THROW(sampler.indices(3, 0), Error);
  }
}

TEST(SplitBatchSampler, RefusesImpossibleArgumentsWithTheValue) {
  const auto sampler = [](std::int64_t length, std::int64_t batch, int parts, int part) {
    return refusal([&] { SplitBatchSampler(length, batch, parts, part, LastBatch::keep); });
  };
  EXPECT_NE(sampler(-1, 4, 1, 0).find("-1 samples"), std::string::npos);
  EXPECT_NE(sampler(5'000'000'000, 4, 1, 0).find("5000000000 samples"), std::string::npos);
  EXPECT_NE(sampler(9, 0, 1, 0).find("--batch-size 0"), std::string::npos);
  EXPECT_NE(sampler(9, 4, 0, 0).find("--parts 0"), std::string::npos);
  EXPECT_NE(sampler(9, 4, 3, 3).find("part 3"), std::string::npos);
  EXPECT_NE(sampler(9, 4, 3, -1).find("part -1"), std::string::npos);
  EXPECT_NE(refusal([] {
              SplitBatchSampler::for_parts(9, 4, 3, {1, 4}, LastBatch::keep, {});
            }).find("part 3"),
            std::string::npos);
}

TEST(SplitBatchSampler, RefusesStepsAndEpochsThatDoNotExist) {
  const SplitBatchSampler sampler(9, 4, 1, 0, LastBatch::keep);
  EXPECT_THROW(sampler.indices(0, 3), Error);
  EXPECT_THROW(sampler.indices(0, -1), Error);
  EXPECT_THROW(sampler.batch_samples(0, 3), Error);
  EXPECT_THROW(sampler.steps(-1), Error);
}

}  // namespace
}  // namespace tutti
