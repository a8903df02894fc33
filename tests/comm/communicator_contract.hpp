#pragma once
// What every Communicator promises, as tests over a factory. Included once per test program, which names the
// implementations with INSTANTIATE_TEST_SUITE_P.

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace tutti {

struct CommunicatorCase {
  std::string name;
  World& (*world)();
  std::function<std::unique_ptr<Communicator>(World&)> make;
};
inline void PrintTo(const CommunicatorCase& which, std::ostream* out) { *out << which.name; }
inline std::string case_name(const testing::TestParamInfo<CommunicatorCase>& info) { return info.param.name; }

class CommunicatorContract : public testing::TestWithParam<CommunicatorCase> {
 protected:
  World& world() { return GetParam().world(); }
  std::unique_ptr<Communicator> make() { return GetParam().make(world()); }

  std::vector<std::int64_t> lengths() {
    const std::int64_t ranks = world().size();
    return {0, 1, ranks - 1, ranks, ranks + 1, 7, 97, 1009, 65537, 1000003};
  }

  InlineStream stream_;
};

TEST_P(CommunicatorContract, KnowsTheRanksOfItsWorld) {
  const auto communicator = make();
  EXPECT_EQ(communicator->rank(), world().rank());
  EXPECT_EQ(communicator->size(), world().size());
  EXPECT_FALSE(communicator->description().empty());
}

TEST_P(CommunicatorContract, GivesZeroedAlignedMemoryThatItsSumsTake) {
  const auto communicator = make();
  const Buffer buffer = communicator->allocate(4 * 1001);
  ASSERT_EQ(buffer.bytes(), 4 * 1001U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
  const Tensor values = buffer.view({1001}, ElementType::f32);
  for (const float value : host_f32(values)) ASSERT_EQ(value, 0.0F);
  host_f32(values)[1000] = 1.0F;
  communicator->all_reduce_sum(values, stream_);
  communicator->finish(stream_);
  EXPECT_EQ(host_f32(values)[1000], static_cast<float>(world().size()));
  EXPECT_EQ(communicator->allocate(0).bytes(), 0U);
}

TEST_P(CommunicatorContract, AddsWholeNumbersExactlyAtEveryLength) {
  const auto communicator = make();
  for (const std::int64_t length : lengths()) {
    std::vector<float> floats = whole_numbers<float>(length, world().rank(), 5);
    std::vector<std::int64_t> integers = whole_numbers<std::int64_t>(length, world().rank(), 6);
    communicator->all_reduce_sum(tensor_over(floats), stream_);
    communicator->finish(stream_);
    EXPECT_TRUE(equal_values(floats, sum_of_whole_numbers<float>(length, world().size(), 5)));
    communicator->all_reduce_sum(tensor_over(integers), stream_);
    communicator->finish(stream_);
    EXPECT_TRUE(equal_values(integers, sum_of_whole_numbers<std::int64_t>(length, world().size(), 6)));
  }
}

TEST_P(CommunicatorContract, AddsIntegersBeyondThePrecisionOfFloats) {
  const auto communicator = make();
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  std::vector<std::int64_t> values{large, -large, world().rank() == 0 ? large : 0};
  communicator->all_reduce_sum(tensor_over(values), stream_);
  communicator->finish(stream_);
  EXPECT_EQ(values, (std::vector<std::int64_t>{large * world().size(), -large * world().size(), large}));
}

TEST_P(CommunicatorContract, CarriesManyQueuedSumsWithProgressCallsInBetween) {
  const auto communicator = make();
  constexpr std::int64_t kSums = 60;
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<std::int64_t>> integers;
  for (std::int64_t sum = 0; sum < kSums; ++sum) {
    const std::int64_t length = sum * sum * sum % 7919;
    floats.push_back(whole_numbers<float>(length, world().rank(), sum));
    integers.push_back(whole_numbers<std::int64_t>(sum, world().rank(), sum));
  }
  for (std::size_t sum = 0; sum < kSums; ++sum) {
    communicator->all_reduce_sum(tensor_over(floats[sum]), stream_);
    // Ranks drive at their own pace, as layers of different cost make them.
    for (int call = 0; call < (communicator->rank() + static_cast<int>(sum)) % 4; ++call) communicator->progress();
    communicator->all_reduce_sum(tensor_over(integers[sum]), stream_);
  }
  communicator->finish(stream_);
  EXPECT_FALSE(communicator->progress());
  for (std::int64_t sum = 0; sum < kSums; ++sum) {
    const auto at = static_cast<std::size_t>(sum);
    EXPECT_TRUE(equal_values(floats[at], sum_of_whole_numbers<float>(sum * sum * sum % 7919, world().size(), sum)));
    EXPECT_TRUE(equal_values(integers[at], sum_of_whole_numbers<std::int64_t>(sum, world().size(), sum)));
  }
}

TEST_P(CommunicatorContract, CarriesSumsOfOverlappingMemoryOutInOrder) {
  const auto communicator = make();
  const auto ranks = static_cast<float>(world().size());
  std::vector<float> values(3000, 1.0F);
  const auto part = [&](std::int64_t first, std::int64_t length) {
    return Tensor{.data = values.data() + first, .shape = {length}};
  };
  communicator->all_reduce_sum(part(0, 2000), stream_);
  communicator->all_reduce_sum(part(1000, 2000), stream_);
  communicator->all_reduce_sum(part(1500, 1), stream_);
  communicator->finish(stream_);
  EXPECT_EQ(values[999], ranks);
  EXPECT_EQ(values[1000], ranks * ranks);
  EXPECT_EQ(values[1499], ranks * ranks);
  EXPECT_EQ(values[1500], ranks * ranks * ranks);
  EXPECT_EQ(values[2000], ranks);
}

TEST_P(CommunicatorContract, GivesAllRanksTheSameBitsEachTime) {
  const auto communicator = make();
  for (const std::int64_t length : {1009, 700001}) {
    std::vector<std::string> digests;
    for (int time = 0; time < 2; ++time) {
      std::vector<float> values = rough_values(length, world().rank());
      communicator->all_reduce_sum(tensor_over(values), stream_);
      communicator->finish(stream_);
      for (std::string& text : all_gather_text(world(), digest_text(digest("values", values)))) {
        digests.push_back(std::move(text));
      }
    }
    EXPECT_EQ(std::count(digests.begin(), digests.end(), digests.front()), std::ssize(digests))
        << fmt::format("digests of {} values: {}", length, fmt::join(digests, " "));
  }
}

TEST_P(CommunicatorContract, RefusesWhatItCannotAdd) {
  const auto communicator = make();
  std::vector<float> values(4);
  Tensor tensor = tensor_over(values);
  tensor.type = ElementType::i32;
  EXPECT_THROW(communicator->all_reduce_sum(tensor, stream_), Error);
  tensor = tensor_over(values);
  tensor.space = MemorySpace::cuda;
  EXPECT_THROW(communicator->all_reduce_sum(tensor, stream_), Error);
  EXPECT_FALSE(communicator->progress());
  communicator->finish(stream_);
}

TEST_P(CommunicatorContract, WorksInSubWorldsSideBySide) {
  const auto whole = make();
  const int colour = world().rank() % 2;
  const auto half_world = world().split(colour);
  const auto half = GetParam().make(*half_world);

  std::vector<float> over_all = whole_numbers<float>(5003, world().rank(), 1);
  std::vector<float> over_half = whole_numbers<float>(4001, half_world->rank(), 2);
  // The order of a sum here and a sum there differs between ranks; only within one communicator does it
  // count.
  if (colour == 0) {
    whole->all_reduce_sum(tensor_over(over_all), stream_);
    half->all_reduce_sum(tensor_over(over_half), stream_);
  } else {
    half->all_reduce_sum(tensor_over(over_half), stream_);
    whole->all_reduce_sum(tensor_over(over_all), stream_);
  }
  half->finish(stream_);
  whole->finish(stream_);
  EXPECT_TRUE(equal_values(over_all, sum_of_whole_numbers<float>(5003, world().size(), 1)));
  EXPECT_TRUE(equal_values(over_half, sum_of_whole_numbers<float>(4001, half_world->size(), 2)));
  half_world->close();
}

}  // namespace tutti
