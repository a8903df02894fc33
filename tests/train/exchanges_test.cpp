// Properties that sharded and central exchanges share with the others.

#include "train/rank_run.hpp"
#include "train/run_spec.hpp"

#include <cstdint>
#include <numeric>

namespace tutti {
namespace {

constexpr const char* kExchangedData = "synthetic:203x1x16x16:5";

std::vector<OptimizerOptions> optimizers() {
  return {{.weight_decay = 5e-4},
          {.kind = OptimizerKind::adamw, .weight_decay = 1e-2},
          {.kind = OptimizerKind::lars, .weight_decay = 5e-4},
          {.weight_decay = 5e-4, .clip_norm = 0.5}};
}

// A sum of two is the same in any order.
TEST(Exchanges, AreAllTheSameOnTwoRanks) {
  const OwnedData data = open_small(kExchangedData);
  for (const OptimizerOptions& optimizer : optimizers()) {
    std::vector<RunSpec> specs;
    for (const Exchange kind : {Exchange::ring, Exchange::sharded, Exchange::central}) {
      RunSpec& spec = specs.emplace_back(small_run(small_resnet(), {.kind = kind}));
      spec.ranks = 2;
      spec.options.optimizer = optimizer;
      spec.options.bucket_bytes = 4096;
    }
    expect_the_same(specs, data.pair);
  }
}

TEST(Exchanges, OfExactSumsAreTheSameWhereverTheOptimizerIs) {
  const OwnedData data = open_small(kExchangedData);
  for (const OptimizerOptions& optimizer : optimizers()) {
    std::vector<RunSpec> specs;
    for (const bool shards : {false, true}) {
      RunSpec& spec =
          specs.emplace_back(small_run(built_in_model("lenet"), {.kind = Exchange::exact, .shard_optimizer = shards}));
      spec.ranks = 3;
      spec.options.optimizer = optimizer;
    }
    expect_the_same(specs, data.pair);
  }
}

TEST(Exchanges, LeaveEveryRankWithTheSameWeights) {
  const OwnedData data = open_small(kExchangedData);
  for (const ExchangeOptions& exchange : {ExchangeOptions{.kind = Exchange::sharded},
                                          {.kind = Exchange::central},
                                          {.kind = Exchange::ring, .wire = Wire::bf16}}) {
    const RunSpec spec = small_run(small_resnet(), exchange);
    for (const int ranks : {5, 8}) expect_the_same(on_ranks(spec, {ranks}), data.pair);
  }
}

// A digest of gradients needs gradients that are otherwise not gathered.
TEST(Exchanges, AreNotChangedByDigests) {
  const OwnedData data = open_small(kExchangedData);
  for (const ExchangeOptions& exchange : {ExchangeOptions{.kind = Exchange::exact, .shard_optimizer = true},
                                          {.kind = Exchange::sharded},
                                          {.kind = Exchange::central}}) {
    RunSpec spec = small_run(small_resnet(), exchange);
    spec.ranks = 4;
    spec.options.optimizer = {.kind = OptimizerKind::lars, .clip_norm = 0.5};
    RunSpec silent = spec;
    silent.digest_every = spec.options.steps;
    const std::vector<std::string> texts = reports_of({spec, silent}, data.pair);
    EXPECT_EQ(lines_of(texts[0], "step 40: weights"), lines_of(texts[1], "step 40: weights"));
  }
}

// The stops alternate between the middle and the end of an epoch: 203 samples in batches of 16 are 12 or 13 steps.
TEST(Exchanges, ResumeAfterAStopToTheSameBits) {
  const OwnedData data = open_small(kExchangedData);
  for (const ExchangeOptions& exchange : {ExchangeOptions{},
                                          {.kind = Exchange::ring, .wire = Wire::bf16},
                                          {.kind = Exchange::exact},
                                          {.kind = Exchange::exact, .shard_optimizer = true},
                                          {.kind = Exchange::sharded},
                                          {.kind = Exchange::central}}) {
    RunSpec spec = small_run(small_resnet(), exchange);
    spec.ranks = 4;
    spec.options.last_batch = LastBatch::rollover;
    RunSpec resumed = spec;
    resumed.stops = {1, 12, 25, 30};
    expect_the_same({spec, resumed}, data.pair);
  }
}

// The bytes of the optimizer state on each rank.
std::vector<std::int64_t> optimizer_bytes(const ExchangeOptions& exchange, const DataPair& data) {
  RankRun run(test_world(), built_in_model("lenet"), data, small_run({}, exchange).options);
  std::vector<std::int64_t> bytes;
  for (const std::string& text :
       all_gather_text(test_world(), std::to_string(run.trainer.replica().state().optimizer_bytes()))) {
    bytes.push_back(std::stoll(text));
  }
  return bytes;
}

TEST(Exchanges, ThatShareTheOptimizerHoldItsStateOnce) {
  const OwnedData data = open_small("synthetic:64x1x28x28:10");
  const Network network(built_in_model("lenet"), Shape{1, 28, 28}, 10);
  const std::int64_t whole = network.layout().trained_elements() * 4;
  const auto ranks = static_cast<std::size_t>(test_world().size());
  EXPECT_EQ(optimizer_bytes({}, data.pair), std::vector(ranks, whole));
  for (const ExchangeOptions& exchange :
       {ExchangeOptions{.kind = Exchange::sharded}, {.kind = Exchange::exact, .shard_optimizer = true}}) {
    const auto bytes = optimizer_bytes(exchange, data.pair);
    EXPECT_EQ(std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0}), whole);
    constexpr std::int64_t kBlockBytes = kNormBlock * sizeof(float);  // one bucket, whose shares begin with such blocks
    for (const std::int64_t each : bytes) EXPECT_NEAR(each, whole / test_world().size(), kBlockBytes);
  }
  auto all_at_first = std::vector<std::int64_t>(ranks, 0);
  all_at_first[0] = whole;
  EXPECT_EQ(optimizer_bytes({.kind = Exchange::central}, data.pair), all_at_first);
}

}  // namespace
}  // namespace tutti
