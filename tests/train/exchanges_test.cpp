// What sharded and central exchanges share with the others.

#include "train/course.hpp"

#include <cstdint>
#include <numeric>

namespace tutti {
namespace {

constexpr const char* kData = "synthetic:203x1x16x16:5";

std::vector<OptimizerOptions> optimizers() {
  return {{.weight_decay = 5e-4},
          {.kind = OptimizerKind::adamw, .weight_decay = 1e-2},
          {.kind = OptimizerKind::lars, .weight_decay = 5e-4},
          {.weight_decay = 5e-4, .clip_norm = 0.5}};
}

// A sum of two is the same in any order.
TEST(Exchanges, AreAllTheSameOnTwoRanks) {
  const OwnedData data = open_small(kData);
  for (const OptimizerOptions& optimizer : optimizers()) {
    std::vector<Course> courses;
    for (const Exchange kind : {Exchange::ring, Exchange::sharded, Exchange::central}) {
      Course& course = courses.emplace_back(small_course(small_resnet(), {.kind = kind}));
      course.ranks = 2;
      course.options.optimizer = optimizer;
      course.options.bucket_bytes = 4096;
    }
    expect_the_same(courses, data.pair);
  }
}

TEST(Exchanges, OfExactSumsAreTheSameWhereverTheOptimizerIs) {
  const OwnedData data = open_small(kData);
  for (const OptimizerOptions& optimizer : optimizers()) {
    std::vector<Course> courses;
    for (const bool shards : {false, true}) {
      Course& course = courses.emplace_back(
          small_course(built_in_model("lenet"), {.kind = Exchange::exact, .shard_optimizer = shards}));
      course.ranks = 3;
      course.options.optimizer = optimizer;
    }
    expect_the_same(courses, data.pair);
  }
}

TEST(Exchanges, LeaveEveryRankWithTheSameWeights) {
  const OwnedData data = open_small(kData);
  for (const Exchange kind : {Exchange::sharded, Exchange::central}) {
    const Course course = small_course(small_resnet(), {.kind = kind});
    for (const int ranks : {5, 8}) expect_the_same(on_ranks(course, {ranks}), data.pair);
  }
}

// To be told, gradients are gathered that nobody else needs.
TEST(Exchanges, AreNotChangedByDigests) {
  const OwnedData data = open_small(kData);
  for (const ExchangeOptions& exchange : {ExchangeOptions{.kind = Exchange::exact, .shard_optimizer = true},
                                          {.kind = Exchange::sharded},
                                          {.kind = Exchange::central}}) {
    Course course = small_course(small_resnet(), exchange);
    course.ranks = 4;
    course.options.optimizer = {.kind = OptimizerKind::lars, .clip_norm = 0.5};
    Course silent = course;
    silent.digest_every = course.options.steps;
    const std::vector<std::string> texts = heard({course, silent}, data.pair);
    EXPECT_EQ(lines_of(texts[0], "step 40: weights"), lines_of(texts[1], "step 40: weights"));
  }
}

// In mid-epoch and at an epoch's end, in turn: 203 samples in batches of 16 are 12 or 13 steps each.
TEST(Exchanges, GoOnFromWhatAStopLeftAsIfNothingHadHappened) {
  const OwnedData data = open_small(kData);
  for (const ExchangeOptions& exchange : {ExchangeOptions{},
                                          {.kind = Exchange::exact},
                                          {.kind = Exchange::exact, .shard_optimizer = true},
                                          {.kind = Exchange::sharded},
                                          {.kind = Exchange::central}}) {
    Course course = small_course(small_resnet(), exchange);
    course.ranks = 4;
    course.options.last_batch = LastBatch::rollover;
    Course broken = course;
    broken.stops = {1, 12, 25, 30};
    expect_the_same({course, broken}, data.pair);
  }
}

// By rank.
std::vector<std::int64_t> optimizer_bytes(const ExchangeOptions& exchange, const Network& network,
                                          const Dataset& data) {
  const auto backend = make_cpu_backend();
  const auto ring = make_mpi_communicator(test_world(), {});
  Trainer trainer({.backend = *backend, .communicator = *ring, .network = network, .train = data},
                  small_course({}, exchange).options, {});
  std::vector<std::int64_t> bytes;
  for (const std::string& text : all_gather_text(test_world(), std::to_string(trainer.replica().optimizer_bytes()))) {
    bytes.push_back(std::stoll(text));
  }
  return bytes;
}

TEST(Exchanges, ThatShareTheOptimizerHoldItsStateOnce) {
  const OwnedData data = open_small("synthetic:64x1x28x28:10");
  const Network network(built_in_model("lenet"), Shape{1, 28, 28}, 10);
  const std::int64_t whole = network.layout().trained_elements() * 4;
  const auto ranks = static_cast<std::size_t>(test_world().size());
  EXPECT_EQ(optimizer_bytes({}, network, *data.pair.train), std::vector(ranks, whole));
  for (const ExchangeOptions& exchange :
       {ExchangeOptions{.kind = Exchange::sharded}, {.kind = Exchange::exact, .shard_optimizer = true}}) {
    const auto bytes = optimizer_bytes(exchange, network, *data.pair.train);
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), whole);
    constexpr std::int64_t kNormBlock = 4096 * 4;  // one bucket, whose shares begin with such blocks
    for (const std::int64_t each : bytes) EXPECT_NEAR(each, whole / test_world().size(), kNormBlock);
  }
  auto all_at_first = std::vector<std::int64_t>(ranks, 0);
  all_at_first[0] = whole;
  EXPECT_EQ(optimizer_bytes({.kind = Exchange::central}, network, *data.pair.train), all_at_first);
}

}  // namespace
}  // namespace tutti
