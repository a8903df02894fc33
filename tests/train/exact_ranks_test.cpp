// The guarantee of the exact exchange: any ranks with any shares of the parts have the same bits after every step.

#include "support/shared_folder.hpp"
#include "train/run_spec.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

namespace tutti {
namespace {

constexpr std::int64_t kSamples = 203;
constexpr const char* kData = "synthetic:203x1x16x16:5";
constexpr ExchangeOptions kExact{.kind = Exchange::exact};

enum class Map { even, first_plays_most, last_plays_most, balanced };

PartMapOptions part_map(Map map, int parts, int ranks) {
  if (map == Map::even || map == Map::balanced) return {.balanced = map == Map::balanced};
  PartMapOptions options{.parts_by_rank = std::vector<int>(static_cast<std::size_t>(ranks), 1)};
  (map == Map::first_plays_most ? options.parts_by_rank.front() : options.parts_by_rank.back()) += parts - ranks;
  return options;
}

OptimizerOptions optimizer(unsigned number) {
  switch (number) {
    case 0:
      return {.weight_decay = 5e-4};
    case 1:
      return {.kind = OptimizerKind::adamw, .weight_decay = 1e-2, .lr_factors = {{"*/bias", 0, 2}, {"*/bias", 2, 0}}};
    case 2:
      return {.kind = OptimizerKind::lars, .weight_decay = 5e-4};
    default:
      return {.weight_decay = 5e-4, .nesterov = true, .clip_norm = 0.5, .decay_factors = {{"*/bias", 0, 0.5}}};
  }
}

// The columns of an orthogonal array are parities of the row's bits. Rows 0 to 15 have every pair of choices, except
// two of the last batch and the workers, which rows 16 and 17 have with other numbers of parts.
class Row {
 public:
  explicit Row(unsigned number) : number_(number) {}

  std::vector<RunSpec> specs() const {
    RunSpec spec = small_run(
        bit(6) ? small_resnet() : built_in_model("lenet"),
        {.kind = Exchange::exact, .shard_optimizer = bit(7), .wire = number_ % 3 == 1 ? Wire::int64 : Wire::int32});
    spec.precision = bit(13) ? Precision::bf16 : Precision::fp32;
    TrainerOptions& options = spec.options;
    options.optimizer = optimizer(two_bits(1, 2));
    options.learning_rate.base = options.optimizer.kind == OptimizerKind::adamw ? 0.002 : 0.05;
    options.batch_size = bit(9) ? 19 : 16;
    options.shuffle = bit(11) ? Shuffle::partition : Shuffle::global;
    options.bucket_bytes = std::size_t{bit(14) ? 4u << 20 : 8u << 10};
    options.last_batch =
        std::array{LastBatch::keep, LastBatch::discard, LastBatch::rollover, LastBatch::discard}.at(two_bits(5, 10));
    options.max_workers = bit(15) ? 2 : 1;
    if (bit(12)) spec.frozen = {spec.model.layers[1].name};
    if (bit(3)) options.average = {.decay = 0.9, .lookahead = bit(12) ? 3 : 0};
    if (number_ == 16) {
      options.num_parts = 12;
      options.max_workers = 2;
    }
    if (number_ == 17) {
      options.num_parts = 7;
      options.max_workers = 1;
      options.last_batch = LastBatch::rollover;
    }
    spec.helper_thread = options.max_workers == 2;
    std::vector<RunSpec> specs;
    for (const int ranks : ranks_of(options.num_parts)) {
      options.part_map = part_map(static_cast<Map>(two_bits(4, 8)), options.num_parts, ranks);
      specs.emplace_back(spec).ranks = ranks;
    }
    return specs;
  }

 private:
  bool bit(unsigned mask) const { return std::popcount(number_ & mask & 15) % 2 != 0; }
  unsigned two_bits(unsigned high, unsigned low) const { return 2u * (bit(high) ? 1u : 0u) + (bit(low) ? 1u : 0u); }
  // One rank, and two other numbers that rotate with the row.
  std::vector<int> ranks_of(int parts) const {
    const auto rotated = [&](unsigned n) { return std::min(parts, 2 + static_cast<int>(n % 7)); };
    return {1, rotated(number_), rotated(number_ + 3)};
  }

  unsigned number_;
};

class ExactRanks : public testing::TestWithParam<unsigned> {};
INSTANTIATE_TEST_SUITE_P(Row, ExactRanks, testing::Range(0u, 18u));

TEST_P(ExactRanks, GiveTheSameBitsAfterEveryStep) { expect_the_same(Row(GetParam()).specs(), open_small(kData).pair); }

TEST(ExactRanks, GiveTheSameBitsHoweverImagesAreChangedAndDrawnAndClassesWeighed) {
  const OwnedData data = open_small("synthetic:203x3x16x16:5");
  RunSpec spec = small_run(small_resnet(), kExact);
  spec.options.recipe.augment = parse_augment("shift:2,alternate-flip,trivial,erase:0.5,mixup:0.4,cutmix:1");
  spec.options.shuffle = Shuffle::balanced;
  spec.options.label_smoothing = 0.1;
  spec.options.class_weights = class_weights("1,2,0.5,1,3", *data.pair.train);
  spec.options.safeguards.audit_every_steps = 3;
  std::vector<RunSpec> specs = on_ranks(spec, {1, 2, 4});
  specs.back().stops = {7, 29};
  expect_the_same(specs, data.pair);
}

// Adds integers as f32 in the order of the ranks.
class RankOrderedSum : public Communicator {
 public:
  RankOrderedSum(World& world, std::unique_ptr<Communicator> ring) : world_(world), ring_(std::move(ring)) {}
  int rank() const override { return ring_->rank(); }
  int size() const override { return ring_->size(); }
  std::string description() const override { return ring_->description(); }
  Buffer allocate(std::size_t bytes) override { return ring_->allocate(bytes); }
  void all_reduce(const Tensor& values, Stream& stream) override { ring_->all_reduce(values, stream); }
  void reduce_scatter_gather(const ReduceScatterGather& sum, Stream& stream) override {
    ReduceScatterGather rest = sum;
    if (sum.values.data != nullptr && sum.values.type == ElementType::i32) {
      add(host_i32(sum.values));
      rest.values = {};
    }
    ring_->reduce_scatter_gather(rest, stream);
  }
  void reduce_to_root(const Tensor& values, Stream& stream) override { ring_->reduce_to_root(values, stream); }
  void broadcast(const Tensor& values, Stream& stream) override { ring_->broadcast(values, stream); }
  bool progress() override { return ring_->progress(); }
  void finish(Stream& stream) override { ring_->finish(stream); }
  void abort() noexcept override { ring_->abort(); }
  std::uint64_t bytes_sent() const override { return ring_->bytes_sent(); }

 private:
  void add(std::span<std::int32_t> values) {
    std::vector<float> sums(values.size());
    for (const auto& bytes : world_.all_gather(std::as_bytes(values))) {
      const auto* theirs = reinterpret_cast<const std::int32_t*>(bytes.data());
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<float>(theirs[i]);
    }
    std::ranges::transform(sums, values.begin(), [](float sum) { return static_cast<std::int32_t>(std::lrint(sum)); });
  }

  World& world_;
  std::unique_ptr<Communicator> ring_;
};

// The comparison above detects a sum that is not exact.
TEST(ExactRanks, DifferFromSumsInTheOrderOfTheRanks) {
  RunSpec spec = small_run(built_in_model("lenet"), kExact);
  spec.wrap = [](World& world, std::unique_ptr<Communicator> ring) {
    return std::make_unique<RankOrderedSum>(world, std::move(ring));
  };
  const OwnedData data = open_small(kData);
  const std::vector<std::string> texts = reports_of(on_ranks(spec, {2, 3}), data.pair);
  for (const std::string& text : texts) EXPECT_NE(text.find("40 steps, "), std::string::npos) << text;
  EXPECT_NE(texts[0], texts[1]);

  spec.wrap = {};
  spec.options.exchange = {};
  const std::vector<std::string> rings = reports_of(on_ranks(spec, {2, 3}), data.pair);
  EXPECT_NE(rings[0], rings[1]);
}

// One step has a learning rate that makes the weights a thousand times as large, and the rate of all others is near 0.
RunSpec leaping_run(double rate) {
  RunSpec spec = small_run(built_in_model("mlp"), kExact);
  spec.options.batch_size = kSamples;
  spec.options.steps = 8;
  spec.options.optimizer = {.momentum = 0};
  spec.options.learning_rate = {.schedule = Schedule::step, .base = rate, .period_epochs = {1}, .decay = 1e-9};
  return spec;
}

TEST(ExactRanks, RepeatAStepWhoseGradientsLeapAndCountItOnce) {
  const OwnedData data = open_small(kData);
  const RunSpec spec = leaping_run(1e4);
  expect_the_same(on_ranks(spec, {1, 7, 2, 6, 3, 5, 8}), data.pair);
  RunSpec ring = spec;
  ring.options.exchange = {};
  const std::vector<std::string> texts = reports_of({spec, ring}, data.pair);
  EXPECT_EQ(lines_of(texts[0], "8 steps"), "8 steps, 2 repeated\n");  // the first, and the one after the leap
  EXPECT_EQ(lines_of(texts[0], "step 1: loss"), lines_of(texts[1], "step 1: loss"));
  for (int step = 1; step <= 8; ++step) {
    const std::string line = lines_of(texts[0], fmt::format("epoch {}:", step));
    EXPECT_NE(line.find(fmt::format("correct of {};", kSamples)), std::string::npos) << texts[0];
    EXPECT_TRUE(line.ends_with(step <= 2 ? "; 1 redone\n" : "; 0 redone\n")) << texts[0];
  }
}

TEST(ExactRanks, NameTheTensorWhenGradientsAreNoLongerFinite) {
  RunSpec spec = small_run(built_in_model("mlp"), kExact);
  spec.options.learning_rate.base = 1e20;
  for (std::string text : reports_of(on_ranks(spec, {1, 7, 3, 5, 8}), open_small(kData).pair)) {
    const std::string everywhere = " on every rank";
    if (const auto place = text.find(everywhere); place != std::string::npos) text.erase(place, everywhere.size());
    EXPECT_NE(lines_of(text, "ended: ").find("at step 2, and in its backward pass a gradient of dense2/weight:"),
              std::string::npos)
        << text;
  }
}

// A run of 17 steps on 4 ranks, 12 on 7 and the rest on one.
TEST(ExactRanks, ResumeFromACheckpointOfOtherRanksToTheSameBits) {
  const SharedFolder folder;
  const OwnedData data = open_small(kData);
  for (const bool shards : {false, true}) {
    RunSpec spec = small_run(small_resnet(), {.kind = Exchange::exact, .shard_optimizer = shards});
    spec.options.last_batch = LastBatch::rollover;
    spec.options.optimizer = optimizer(1);
    spec.options.average = {.decay = 0.9, .lookahead = shards ? 3 : 0};
    spec.options.learning_rate.schedule = Schedule::linear;
    spec.options.schedule_epochs = 4;
    spec.frozen = {spec.model.layers[1].name};
    spec.ranks = 3;
    const std::string uninterrupted = reports_of({spec}, data.pair)[0];
    std::string resumed;
    spec.to = folder.path();
    for (const auto& [ranks, steps] : {std::pair(4, 17), std::pair(7, 29), std::pair(1, 40)}) {
      spec.ranks = ranks;
      spec.options.steps = steps;
      const std::string text = reports_of({spec}, data.pair)[0];
      EXPECT_EQ(lines_of(text, fmt::format("{} steps", steps)),
                fmt::format("{} steps, {} repeated\n", steps, spec.from.empty() ? 1 : 0));
      resumed += lines_of(text, "step ");
      spec.from = fmt::format("{}/step-{:08}.h5", folder.path(), steps);
    }
    EXPECT_EQ(first_difference(resumed, lines_of(uninterrupted, "step ")), "");
  }
}

}  // namespace
}  // namespace tutti
