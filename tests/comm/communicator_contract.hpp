#pragma once
// Tests of the Communicator interface, parameterised by a factory. Each test program includes this once and lists its
// implementations with INSTANTIATE_TEST_SUITE_P.

#include "tutti/backend/backend.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/comm/communicator.hpp"

#include "summed_values.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
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
  // The backend of the communicator's memory; null for host memory.
  Backend& (*backend)() = nullptr;
  // One communicator for all tests of a suite, where each takes long to make.
  bool is_kept = false;
};
inline void PrintTo(const CommunicatorCase& which, std::ostream* out) { *out << which.name; }
inline std::string case_name(const testing::TestParamInfo<CommunicatorCase>& info) { return info.param.name; }

class CommunicatorContract : public testing::TestWithParam<CommunicatorCase> {
 protected:
  // Values in the communicator's memory.
  template <class T>
  struct Values {
    Buffer memory;
    std::vector<T> host;
    Tensor tensor() const { return part(0, std::ssize(host)); }
    Tensor part(std::int64_t begin, std::int64_t end) const {
      return memory.view({end - begin}, element_type<T>(), static_cast<std::size_t>(begin) * sizeof(T));
    }
    Tensor on_host() { return tensor_over(host); }
  };

  World& world() { return GetParam().world(); }
  static void TearDownTestSuite() { kept().reset(); }

  std::shared_ptr<Communicator> make() {
    if (!GetParam().is_kept) return GetParam().make(world());
    if (!kept()) kept() = GetParam().make(world());
    return kept();
  }

  template <class T>
  Values<T> put(Communicator& communicator, std::vector<T> values) {
    Values<T> put{communicator.allocate(values.size() * sizeof(T)), std::move(values)};
    copy(stream(), put.tensor(), put.on_host());
    return put;
  }
  // The values after the stream is done.
  template <class T>
  const std::vector<T>& read(Values<T>& values) {
    copy(stream(), values.on_host(), values.tensor());
    stream().synchronize();
    return values.host;
  }
  template <class T>
  const std::vector<T>& sum(Communicator& communicator, Values<T>& values) {
    communicator.all_reduce(values.tensor(), stream());
    communicator.finish(stream());
    return read(values);
  }

  std::vector<std::int64_t> lengths() {
    const std::int64_t ranks = world().size();
    return {0, 1, ranks - 1, ranks, ranks + 1, 7, 97, 1009, 65537, 200003};
  }

  Stream& stream() { return *stream_; }

  void copy(Stream& stream, const Tensor& to, const Tensor& from) {
    if (backend_ != nullptr) return backend_->copy(stream, to, from);
    if (to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
  }

 private:
  static std::shared_ptr<Communicator>& kept() {
    static std::shared_ptr<Communicator> communicator;
    return communicator;
  }

  Backend* backend_ = GetParam().backend == nullptr ? nullptr : &GetParam().backend();
  std::unique_ptr<Stream> stream_ = backend_ == nullptr ? std::make_unique<IdleStream>() : backend_->make_stream();
};

TEST_P(CommunicatorContract, KnowsTheRanksOfItsWorld) {
  const auto communicator = make();
  EXPECT_EQ(communicator->rank(), world().rank());
  EXPECT_EQ(communicator->size(), world().size());
  EXPECT_FALSE(communicator->description().empty());
}

TEST_P(CommunicatorContract, AllocatesZeroedAlignedMemory) {
  const auto communicator = make();
  Values<float> values{communicator->allocate(4 * 1001), std::vector<float>(1001, 7.0F)};
  ASSERT_EQ(values.memory.bytes(), 4 * 1001U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(values.memory.data()) % 64, 0U);
  EXPECT_EQ(read(values), std::vector<float>(1001));
  values = put(*communicator, std::vector<float>(1001, 1.0F));
  EXPECT_EQ(sum(*communicator, values), std::vector<float>(1001, static_cast<float>(world().size())));
  EXPECT_EQ(communicator->allocate(0).bytes(), 0U);
}

TEST_P(CommunicatorContract, AddsWholeNumbersExactlyAtEveryLength) {
  const auto communicator = make();
  for (const std::int64_t length : lengths()) {
    auto floats = put(*communicator, whole_numbers<float>(length, world().rank(), 5));
    auto integers = put(*communicator, whole_numbers<std::int64_t>(length, world().rank(), 6));
    EXPECT_TRUE(equal_values(sum(*communicator, floats), sum_of_whole_numbers<float>(length, world().size(), 5)));
    EXPECT_TRUE(
        equal_values(sum(*communicator, integers), sum_of_whole_numbers<std::int64_t>(length, world().size(), 6)));
    auto short_integers = put(*communicator, whole_numbers<std::int32_t>(length, world().rank(), 7));
    EXPECT_TRUE(equal_values(sum(*communicator, short_integers),
                             sum_of_whole_numbers<std::int32_t>(length, world().size(), 7)));
  }
}

// 257 and 259 are halfway between two numbers of bf16.
TEST_P(CommunicatorContract, RoundsSumsOfBf16ToNearestEven) {
  const auto communicator = make();
  const bool has_two = world().size() > 1;
  const int rank = world().rank();
  auto values = put(*communicator, in_bf16(rank == 0   ? std::vector{256.0F, 258.0F, -0.5F}
                                           : rank == 1 ? std::vector{1.0F, 1.0F, 0.5F}
                                                       : std::vector{0.0F, 0.0F, 0.0F}));
  EXPECT_TRUE(equal_values(sum(*communicator, values),
                           in_bf16(has_two ? std::vector{256.0F, 260.0F, 0.0F} : std::vector{256.0F, 258.0F, -0.5F})));
  const auto small_numbers = [](std::int64_t length, int factor) {
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < length; ++i) numbers.push_back(static_cast<float>(factor * (i % 5 - 2)));
    return in_bf16(numbers);
  };
  for (const std::int64_t length : lengths()) {
    auto numbers = put(*communicator, small_numbers(length, rank + 1));
    const int ranks = world().size();
    EXPECT_TRUE(equal_values(sum(*communicator, numbers), small_numbers(length, ranks * (ranks + 1) / 2))) << length;
  }
}

TEST_P(CommunicatorContract, AddsIntegersBeyondThePrecisionOfFloats) {
  const auto communicator = make();
  const std::int64_t large = (std::int64_t{1} << 53) + 1;
  auto values = put(*communicator, std::vector<std::int64_t>{large, -large, world().rank() == 0 ? large : 0});
  EXPECT_EQ(sum(*communicator, values),
            (std::vector<std::int64_t>{large * world().size(), -large * world().size(), large}));
}

TEST_P(CommunicatorContract, CompletesManyQueuedSumsWithProgressCallsInBetween) {
  const auto communicator = make();
  constexpr std::int64_t kSums = 60;
  std::vector<Values<float>> floats;
  std::vector<Values<std::int64_t>> integers;
  for (std::int64_t at = 0; at < kSums; ++at) {
    floats.push_back(put(*communicator, whole_numbers<float>(at * at * at % 7919, world().rank(), at)));
    integers.push_back(put(*communicator, whole_numbers<std::int64_t>(at, world().rank(), at)));
  }
  for (std::size_t at = 0; at < kSums; ++at) {
    communicator->all_reduce(floats[at].tensor(), stream());
    // Ranks call progress() at different intervals, as with layers of different cost.
    for (int call = 0; call < (communicator->rank() + static_cast<int>(at)) % 4; ++call) communicator->progress();
    communicator->all_reduce(integers[at].tensor(), stream());
  }
  communicator->finish(stream());
  stream().synchronize();
  EXPECT_FALSE(communicator->progress());
  for (std::int64_t at = 0; at < kSums; ++at) {
    const auto i = static_cast<std::size_t>(at);
    EXPECT_TRUE(equal_values(read(floats[i]), sum_of_whole_numbers<float>(at * at * at % 7919, world().size(), at)));
    EXPECT_TRUE(equal_values(read(integers[i]), sum_of_whole_numbers<std::int64_t>(at, world().size(), at)));
  }
}

TEST_P(CommunicatorContract, ExecutesSumsOfOverlappingMemoryInOrder) {
  const auto communicator = make();
  const auto ranks = static_cast<float>(world().size());
  auto values = put(*communicator, std::vector<float>(3000, 1.0F));
  const auto part = [&](std::size_t first, std::int64_t length) {
    return values.memory.view({length}, ElementType::f32, first * sizeof(float));
  };
  communicator->all_reduce(part(0, 2000), stream());
  communicator->all_reduce(part(1000, 2000), stream());
  communicator->all_reduce(part(1500, 1), stream());
  communicator->finish(stream());
  const std::vector<float>& sums = read(values);
  EXPECT_EQ(sums[999], ranks);
  EXPECT_EQ(sums[1000], ranks * ranks);
  EXPECT_EQ(sums[1499], ranks * ranks);
  EXPECT_EQ(sums[1500], ranks * ranks * ranks);
  EXPECT_EQ(sums[2000], ranks);
}

TEST_P(CommunicatorContract, GivesAllRanksTheSameBitsEachTime) {
  const auto communicator = make();
  for (const std::int64_t length : {1009, 700001}) {
    std::vector<std::string> digests;
    for (int time = 0; time < 2; ++time) {
      auto values = put(*communicator, rough_values(length, world().rank()));
      for (std::string& text : all_gather_text(world(), digest_text(digest("values", sum(*communicator, values))))) {
        digests.push_back(std::move(text));
      }
    }
    EXPECT_EQ(std::count(digests.begin(), digests.end(), digests.front()), std::ssize(digests))
        << fmt::format("digests of {} values: {}", length, fmt::join(digests, " "));
  }
}

TEST_P(CommunicatorContract, RefusesWhatItCannotAdd) {
  const auto communicator = make();
  const auto values = put(*communicator, std::vector<float>(4));
  Tensor tensor = values.tensor();
  tensor.type = ElementType::u8;
  EXPECT_THROW(communicator->all_reduce(tensor, stream()), Error);
  tensor = values.tensor();
  tensor.space = tensor.space == MemorySpace::host ? MemorySpace::cuda : MemorySpace::host;
  EXPECT_THROW(communicator->all_reduce(tensor, stream()), Error);
  EXPECT_FALSE(communicator->progress());
  communicator->finish(stream());
}

TEST_P(CommunicatorContract, WorksInConcurrentSubWorlds) {
  const auto whole = make();
  const int color = world().rank() % 2;
  const auto half_world = world().split(color);
  const auto half = GetParam().make(*half_world);

  auto over_all = put(*whole, whole_numbers<float>(5003, world().rank(), 1));
  auto over_half = put(*half, whole_numbers<float>(4001, half_world->rank(), 2));
  // The order of operations on two communicators differs between ranks; only the order within one must be the same.
  if (color == 0) {
    whole->all_reduce(over_all.tensor(), stream());
    half->all_reduce(over_half.tensor(), stream());
  } else {
    half->all_reduce(over_half.tensor(), stream());
    whole->all_reduce(over_all.tensor(), stream());
  }
  half->finish(stream());
  whole->finish(stream());
  EXPECT_TRUE(equal_values(read(over_all), sum_of_whole_numbers<float>(5003, world().size(), 1)));
  EXPECT_TRUE(equal_values(read(over_half), sum_of_whole_numbers<float>(4001, half_world->size(), 2)));
  half_world->close();
}

}  // namespace tutti
