#pragma once
// More tests of the Communicator interface: reduce_scatter_gather, reduce_to_root and broadcast. Included by the test
// programs that list the implementations.

#include "communicator_contract.hpp"

#include <utility>

namespace tutti {

class SharedSumContract : public CommunicatorContract {
 protected:
  // Shards of n elements: equal; ascending; all at the first rank; all at the last; only at every other rank.
  std::vector<std::vector<std::int64_t>> bounds_of(std::int64_t elements) {
    const std::int64_t ranks = world().size();
    const auto scaled = [&](const std::function<std::int64_t(std::int64_t rank)>& weight) {
      std::vector<std::int64_t> bounds{0};
      for (std::int64_t rank = 0; rank < ranks; ++rank) bounds.push_back(bounds.back() + weight(rank));
      const std::int64_t total = std::max<std::int64_t>(bounds.back(), 1);
      for (std::int64_t& bound : bounds) bound = bound * elements / total;
      bounds.back() = elements;
      return bounds;
    };
    return {scaled([](std::int64_t) { return 1; }), scaled([](std::int64_t rank) { return rank * rank * rank; }),
            scaled([](std::int64_t rank) { return rank == 0; }),
            scaled([=](std::int64_t rank) { return rank == ranks - 1; }),
            scaled([](std::int64_t rank) { return rank % 2; })};
  }

  template <class T>
  std::vector<T> own_of(const std::vector<std::int64_t>& bounds, const std::vector<T>& all) {
    const auto own = bounds.begin() + world().rank();
    return {all.begin() + own[0], all.begin() + own[1]};
  }

  // Halves the sums, as f32; counts the elements that it was called for.
  template <class T>
  auto halving(Values<T>& sums, Values<float>& results, std::int64_t& done) {
    return [this, &sums, &results, &done](Stream& stream, std::int64_t begin, std::int64_t end) {
      EXPECT_LT(begin, end);
      done += end - begin;
      std::vector<T> whole(static_cast<std::size_t>(end - begin));
      copy(stream, tensor_over(whole), sums.part(begin, end));
      stream.synchronize();
      std::vector<float> halves(whole.size());
      std::ranges::transform(whole, halves.begin(), [](T value) { return static_cast<float>(value) / 2; });
      copy(stream, results.part(begin, end), tensor_over(halves));
      stream.synchronize();
    };
  }

  static std::vector<float> halves_of(const std::vector<std::int64_t>& values) {
    std::vector<float> halves(values.size());
    std::ranges::transform(values, halves.begin(), [](std::int64_t v) { return static_cast<float>(v) / 2; });
    return halves;
  }
};

TEST_P(SharedSumContract, GathersTheProcessedShareOfEveryRank) {
  const auto communicator = make();
  for (const std::int64_t length : lengths()) {
    for (const auto& bounds : bounds_of(length)) {
      auto values = put(*communicator, whole_numbers<std::int64_t>(length, world().rank(), 3));
      auto results = put(*communicator, std::vector<float>(static_cast<std::size_t>(length), 1.0F));
      std::int64_t done = 0;
      communicator->reduce_scatter_gather({.values = values.tensor(),
                                           .bounds = bounds,
                                           .transform_shard = halving(values, results, done),
                                           .results = results.tensor()},
                                          stream());
      communicator->finish(stream());
      const auto sums = sum_of_whole_numbers<std::int64_t>(length, world().size(), 3);
      ASSERT_TRUE(equal_values(read(results), halves_of(sums))) << fmt::format("{}", fmt::join(bounds, " "));
      EXPECT_TRUE(equal_values(own_of(bounds, read(values)), own_of(bounds, sums)));
      EXPECT_EQ(done, std::ssize(own_of(bounds, sums)));
    }
  }
}

TEST_P(SharedSumContract, ReducesSharesOnlyAndGathersThemLater) {
  const auto communicator = make();
  const std::int64_t length = 150'001;
  for (const auto& bounds : bounds_of(length)) {
    auto values = put(*communicator, whole_numbers<float>(length, world().rank(), 9));
    const auto sums = sum_of_whole_numbers<float>(length, world().size(), 9);
    communicator->reduce_scatter_gather({.values = values.tensor(), .bounds = bounds}, stream());
    communicator->finish(stream());
    EXPECT_TRUE(equal_values(own_of(bounds, read(values)), own_of(bounds, sums)));
    communicator->reduce_scatter_gather({.bounds = bounds, .results = values.tensor()}, stream());
    communicator->finish(stream());
    EXPECT_TRUE(equal_values(read(values), sums));
  }
}

TEST_P(SharedSumContract, GathersSharesWithoutAReduction) {
  const auto communicator = make();
  const std::int64_t length = 70'001;
  for (const auto& bounds : bounds_of(length)) {
    auto numbers = put(*communicator, whole_numbers<std::int64_t>(length, 0, 4));
    auto results = put(*communicator, std::vector<float>(static_cast<std::size_t>(length)));
    std::int64_t done = 0;
    communicator->reduce_scatter_gather(
        {.bounds = bounds, .transform_shard = halving(numbers, results, done), .results = results.tensor()}, stream());
    communicator->finish(stream());
    EXPECT_TRUE(equal_values(read(results), halves_of(numbers.host)));
  }
}

TEST_P(SharedSumContract, ExecutesManyQueuedOperationsOfAllKindsInOrder) {
  const auto communicator = make();
  const std::int64_t ranks = world().size();
  constexpr std::int64_t kLength = 30'011;
  constexpr std::size_t kBlocks = 4;
  std::vector<Values<std::int64_t>> values;
  std::vector<Values<float>> results;
  std::vector<std::int64_t> done(kBlocks);
  for (std::size_t at = 0; at < kBlocks; ++at) {
    values.push_back(put(*communicator, whole_numbers<std::int64_t>(kLength, world().rank(), std::ssize(values))));
    results.push_back(put(*communicator, std::vector<float>(kLength)));
  }
  for (std::size_t at = 0; at < kBlocks; ++at) {
    const auto bounds = bounds_of(kLength)[at];
    communicator->reduce_scatter_gather({.values = values[at].tensor(),
                                         .bounds = bounds,
                                         .transform_shard = halving(values[at], results[at], done[at]),
                                         .results = results[at].tensor()},
                                        stream());
    for (int call = 0; call < (world().rank() + static_cast<int>(at)) % 3; ++call) communicator->progress();
    // Operates on the results of the step before: equal on all ranks, then only at rank 0, then on all ranks again.
    communicator->all_reduce(results[at].tensor(), stream());
    communicator->reduce_to_root(results[at].tensor(), stream());
    communicator->broadcast(results[at].tensor(), stream());
  }
  communicator->finish(stream());
  stream().synchronize();
  EXPECT_FALSE(communicator->progress());
  for (std::size_t at = 0; at < kBlocks; ++at) {
    auto expected = halves_of(sum_of_whole_numbers<std::int64_t>(kLength, ranks, static_cast<std::int64_t>(at)));
    for (float& value : expected) value *= static_cast<float>(ranks * ranks);
    EXPECT_TRUE(equal_values(read(results[at]), expected)) << at;
  }
}

TEST_P(SharedSumContract, GivesAllRanksTheSameBitsOfSharedSumsEachTime) {
  const auto communicator = make();
  const std::int64_t length = 400'009;
  std::vector<std::string> digests;
  for (int time = 0; time < 2; ++time) {
    auto values = put(*communicator, rough_values(length, world().rank()));
    communicator->reduce_scatter_gather(
        {.values = values.tensor(), .bounds = bounds_of(length)[1], .results = values.tensor()}, stream());
    communicator->finish(stream());
    for (std::string& text : all_gather_text(world(), digest_text(digest("values", read(values))))) {
      digests.push_back(std::move(text));
    }
  }
  EXPECT_EQ(std::ranges::count(digests, digests.front()), std::ssize(digests));
}

TEST_P(SharedSumContract, ReducesToRankZeroAndBroadcastsFromIt) {
  const auto communicator = make();
  for (const std::int64_t length : lengths()) {
    const auto own_values = whole_numbers<float>(length, world().rank(), 8);
    auto values = put(*communicator, own_values);
    auto numbers = put(*communicator, whole_numbers<std::int64_t>(length, world().rank(), 2));
    communicator->reduce_to_root(values.tensor(), stream());
    communicator->broadcast(numbers.tensor(), stream());
    communicator->finish(stream());
    const auto sums = sum_of_whole_numbers<float>(length, world().size(), 8);
    EXPECT_TRUE(equal_values(read(values), world().rank() == 0 ? sums : own_values));
    EXPECT_TRUE(equal_values(read(numbers), whole_numbers<std::int64_t>(length, 0, 2)));
  }
}

TEST_P(SharedSumContract, RefusesSharesThatDoNotFit) {
  const auto communicator = make();
  const auto ranks = static_cast<std::size_t>(world().size());
  const auto values = put(*communicator, std::vector<float>(4));
  std::vector<std::int64_t> bounds(ranks + 1, 4);
  bounds.front() = 0;
  const auto share = [&](const std::vector<std::int64_t>& wrong, const Tensor& tensor) {
    communicator->reduce_scatter_gather({.values = tensor, .bounds = wrong}, stream());
  };
  EXPECT_THROW(share(std::vector<std::int64_t>(ranks, 0), values.tensor()), Error);
  EXPECT_THROW(share(std::vector<std::int64_t>(ranks + 1, 4), values.tensor()), Error);
  bounds.back() = 3;
  EXPECT_THROW(share(bounds, values.tensor()), Error);
  bounds.back() = 4;
  Tensor bytes = values.tensor();
  bytes.type = ElementType::u8;
  EXPECT_THROW(share(bounds, bytes), Error);
  EXPECT_THROW(communicator->broadcast(bytes, stream()), Error);
  EXPECT_THROW(communicator->reduce_to_root(bytes, stream()), Error);
  communicator->finish(stream());
}

}  // namespace tutti
