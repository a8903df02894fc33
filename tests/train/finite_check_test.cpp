// Values that are not finite are found at their step in every exchange, and all ranks name the same rank and tensor.
// The step is skipped where the options request it.

#include "tutti/data/part_map.hpp"
#include "tutti/nn/parameter_arena.hpp"

#include "support/shared_folder.hpp"
#include "train/run_spec.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

namespace tutti {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kMostRanks = 4;

constexpr ExchangeOptions kCheckedExchanges[] = {{},
                                                 {.kind = Exchange::sharded},
                                                 {.kind = Exchange::central},
                                                 {.kind = Exchange::exact},
                                                 {.kind = Exchange::exact, .shard_optimizer = true}};

// Images of two channels. The second is 0 except one pixel of one sample, which the recipe makes infinite.
struct SpoiltData {
  static constexpr std::int64_t kSamples = 100;
  static constexpr std::int64_t kSpoilt = 70;  // with batches of 16 in the file's order, it is in step 5
  static constexpr int kStep = 5;
  static constexpr int kPart = 3;  // of 8

  explicit SpoiltData(bool is_spoilt = true) : images(kSamples * 2 * kPixels), labels(kSamples) {
    for (std::int64_t sample = 0; sample < kSamples; ++sample) {
      labels[static_cast<std::size_t>(sample)] = static_cast<std::int32_t>(sample % 5);
      for (std::int64_t i = 0; i < kPixels; ++i) {
        images[static_cast<std::size_t>(2 * kPixels * sample + i)] = static_cast<std::uint8_t>(sample * 31 + i * i);
      }
    }
    if (is_spoilt) images[2 * kPixels * kSpoilt + kPixels + 9] = 255;
    const DatasetInfo info{.name = "spoilt",
                           .image = Shape{2, 8, 8},
                           .classes = 5,
                           .class_names = {},
                           .samples = kSamples,
                           .statistics = {},
                           .class_samples = {},
                           .skipped = {}};
    pair.train = std::make_unique<MemoryDataset>(info, images, labels);
  }

  static constexpr std::int64_t kPixels = 64;
  std::vector<std::uint8_t> images;
  std::vector<std::int32_t> labels;
  DataPair pair;
};

RunSpec spoilt_run(const NetworkSpec& model, const ExchangeOptions& exchange) {
  RunSpec spec = small_run(model, exchange);
  spec.options.shuffle = Shuffle::none;
  spec.options.recipe.statistics = {.mean = {0, 0}, .deviation = {1, 0x1p-140}};
  spec.options.steps = 9;
  return spec;
}

constexpr const char* kRemedy = "lower --lr, or warm up with --warmup-epochs 1";
std::string ended(const std::string& what, const char* remedy = kRemedy) {
  return fmt::format("ended: {}: {}\n", what, remedy);
}

std::string on_rank(int rank, int ranks) { return ranks == 1 ? "" : fmt::format(" on rank {}", rank); }

// Overwrites a gradient of this rank at step 3, just before the exchange.
class SpoiltGradient : public PhaseListener {
 public:
  SpoiltGradient(float& gradient, float value) : gradient_(gradient), value_(value) {}
  void on_begin(const StepPhase& at) override {
    if (at.step != 3 || at.phase != Phase::exchange) return;
    if (std::isfinite(value_) && std::exchange(spoilt_, true)) return;
    gradient_ = value_;
  }

 private:
  float& gradient_;
  float value_;
  bool spoilt_ = false;
};

TEST(FiniteCheck, NamesTheRankAndTheGradientAtTheStep) {
  const OwnedData data = open_small("synthetic:64x2x8x8:5");
  const Network network(small_resnet(), Shape{2, 8, 8}, 5);
  for (const std::size_t slice : {std::size_t{1}, network.layout().trained().size() - 1}) {
    const ParameterSlice& spoilt = network.layout().slices()[slice];
    for (const ExchangeOptions& exchange : std::span(kCheckedExchanges).first(3)) {
      for (int ranks = 1; ranks <= kMostRanks; ++ranks) {
        RunSpec spec = small_run(small_resnet(), exchange);
        spec.ranks = ranks;
        spec.options.bucket_bytes = 1024;
        spec.inject = [&](int rank, Trainer& trainer) -> std::unique_ptr<PhaseListener> {
          if (rank != ranks - 1) return nullptr;
          float& gradient =
              host_f32(trainer.replica().state().gradients())[static_cast<std::size_t>(spoilt.offset + 2)];
          return std::make_unique<SpoiltGradient>(gradient, ranks % 2 == 0 ? kNan : -kInfinity);
        };
        const std::string text = reports_of({spec}, data.pair)[0];
        EXPECT_EQ(lines_of(text, "ended"),
                  ended(fmt::format("a gradient of {} is no longer a finite number at step 3{}", spoilt.name,
                                    on_rank(ranks - 1, ranks))));
        EXPECT_EQ(lines_of(text, "step 3"), "") << text;
      }
    }
  }
}

TEST(FiniteCheck, NamesTheWeightThatIsNotFinite) {
  const OwnedData data = open_small("synthetic:64x2x8x8:5");
  for (const ExchangeOptions& exchange : kCheckedExchanges) {
    for (const int ranks : {1, kMostRanks}) {
      RunSpec spec = small_run(small_resnet(), exchange);
      spec.ranks = ranks;
      spec.inject = [&](int rank, Trainer& trainer) -> std::unique_ptr<PhaseListener> {
        TrainState state = trainer.snapshot();
        if (rank == ranks - 1) {
          const auto conv = std::ranges::find(state.parameters, "block1.conv/weight", &NamedArray::name);
          conv->values[7] = kNan;
          trainer.restore(state);
        }
        return nullptr;
      };
      EXPECT_EQ(lines_of(reports_of({spec}, data.pair)[0], "ended"),
                ended(fmt::format("a value of block1.conv/weight is no longer a finite number at step 1{}",
                                  on_rank(ranks - 1, ranks))));
    }
  }
}

TEST(FiniteCheck, NamesTheBatchThatIsNotFinite) {
  const SpoiltData data;
  for (const ExchangeOptions& exchange : kCheckedExchanges) {
    for (const int ranks : {1, 3, kMostRanks}) {
      RunSpec spec = spoilt_run(built_in_model("mlp"), exchange);
      spec.ranks = ranks;
      spec.options.max_workers = 1 + test_world().rank() % 3;  // hosts have more cores, or fewer
      const std::string text = reports_of({spec}, data.pair)[0];
      EXPECT_EQ(lines_of(text, "ended"),
                ended(fmt::format("the loss is no longer a finite number at step {}{}, and in its backward pass a "
                                  "gradient of dense2/weight; pixels of its batch are not finite either",
                                  SpoiltData::kStep, on_rank(PartMap(8, ranks).rank_of(SpoiltData::kPart), ranks)),
                      "check the data and --normalize"));
    }
  }
}

TEST(FiniteCheck, GoesOnWhereOnlyTheTestLossIsNotFinite) {
  SpoiltData calm(false);
  SpoiltData spoilt;
  calm.pair.test = std::move(spoilt.pair.train);
  RunSpec spec = spoilt_run(built_in_model("mlp"), {});
  spec.ranks = 2;
  const std::string text = reports_of({spec}, calm.pair)[0];
  EXPECT_EQ(lines_of(text, "ended"), "");
  EXPECT_NE(text.find("epoch 2: "), std::string::npos) << text;
  EXPECT_NE(text.find("9 steps, 0 repeated"), std::string::npos) << text;
}

// All local gradients are finite, but their sum is not, and neither are the weights of the next step.
TEST(FiniteCheck, FindsAnOverflowOfTheSumAtTheNextStep) {
  const OwnedData data = open_small("synthetic:64x2x8x8:5");
  const Network network(small_resnet(), Shape{2, 8, 8}, 5);
  const auto place = static_cast<std::size_t>(network.layout().slices()[0].offset);
  for (const ExchangeOptions& exchange : std::span(kCheckedExchanges).first(3)) {
    RunSpec spec = small_run(small_resnet(), exchange);
    spec.ranks = 2;
    spec.inject = [&](int, Trainer& trainer) {
      return std::make_unique<SpoiltGradient>(host_f32(trainer.replica().state().gradients())[place], 3e38F);
    };
    EXPECT_EQ(lines_of(reports_of({spec}, data.pair)[0], "ended"),
              ended(fmt::format("a value of {} is no longer a finite number at step 4 on every rank",
                                network.layout().slices()[0].name)));
  }
}

TEST(FiniteCheck, SkipsTheSameStepOnAnyNumberOfRanks) {
  const SpoiltData data;
  for (const bool shards : {false, true}) {
    for (const auto optimizer : {OptimizerKind::sgd, OptimizerKind::adamw}) {
      RunSpec spec = spoilt_run(small_resnet(), {.kind = Exchange::exact, .shard_optimizer = shards});
      spec.options.safeguards.on_not_finite = OnNotFinite::skip;
      spec.options.optimizer.kind = optimizer;
      const std::vector<std::string> texts = reports_of(on_ranks(spec, {1, 2, 3, 4}), data.pair);
      for (const std::string& text : texts) EXPECT_EQ(first_difference(text, texts[0]), "");
      if (test_world().rank() > 0) continue;
      EXPECT_NE(texts[0].find(fmt::format("step {}: left out\n", SpoiltData::kStep)), std::string::npos);
      EXPECT_NE(texts[0].find(" of 84; test"), std::string::npos) << texts[0];  // 100 without a batch
      EXPECT_NE(texts[0].find("\n9 steps, 1 repeated\n"), std::string::npos) << texts[0];
    }
  }
}

// The other run advances its state past the step explicitly.
TEST(FiniteCheck, LeavesTheStateUnchangedByASkippedStep) {
  const SpoiltData data;
  for (const ExchangeOptions& exchange : kCheckedExchanges) {
    RunSpec left_out = spoilt_run(small_resnet(), exchange);
    left_out.ranks = 3;
    left_out.options.optimizer = {.kind = OptimizerKind::adamw, .weight_decay = 1e-2};
    left_out.options.safeguards.on_not_finite = OnNotFinite::skip;
    RunSpec without = left_out;
    without.stops = {SpoiltData::kStep - 1};
    without.inject = [&](int, Trainer& trainer) -> std::unique_ptr<PhaseListener> {
      if (trainer.steps_done() == 0) return nullptr;
      TrainState state = trainer.snapshot();
      EXPECT_EQ(state.progress.skipped_steps, 0);
      state.progress.skipped_steps = 1;
      state.progress.samples_in_epoch += 16;
      ++state.progress.step;
      ++state.progress.step_in_epoch;
      trainer.restore(state);
      return nullptr;
    };
    const std::vector<std::string> texts = reports_of({left_out}, data.pair);
    const std::vector<std::string> others = reports_of({without}, data.pair);
    for (int step = 1; step <= 9; ++step) {
      if (step == SpoiltData::kStep) continue;
      const std::string weights = fmt::format("step {}: weights", step);
      EXPECT_NE(lines_of(texts[0], weights), "") << texts[0];
      EXPECT_EQ(lines_of(texts[0], weights), lines_of(others[0], weights));
    }
    EXPECT_EQ(lines_of(texts[0], "epoch"), lines_of(others[0], "epoch"));
  }
}

TEST(FiniteCheck, CountsTheSkippedStepsInTheCheckpoint) {
  const SpoiltData data;
  const SharedFolder folder;
  RunSpec spec = spoilt_run(small_resnet(), {});
  spec.ranks = 2;
  spec.options.optimizer = {.kind = OptimizerKind::adamw, .weight_decay = 1e-2};  // depends on the number of updates
  spec.options.safeguards.on_not_finite = OnNotFinite::skip;
  const std::string uninterrupted = reports_of({spec}, data.pair)[0];
  std::string resumed;
  spec.to = folder.path();
  for (const std::int64_t steps : {SpoiltData::kStep + 1, 9}) {
    spec.options.steps = steps;
    resumed += lines_of(reports_of({spec}, data.pair)[0], "step ");
    spec.from = fmt::format("{}/step-{:08}.h5", folder.path(), steps);
    if (test_world().rank() > 0) continue;
    EXPECT_EQ(load_checkpoint(spec.from).state.progress.skipped_steps, 1);
  }
  EXPECT_EQ(first_difference(resumed, lines_of(uninterrupted, "step ")), "");
}

TEST(FiniteCheck, EndsARunThatSkipsTooManyStepsInARow) {
  const OwnedData data = open_small("synthetic:64x2x8x8:5");
  for (const ExchangeOptions& exchange : kCheckedExchanges) {
    RunSpec spec = small_run(built_in_model("mlp"), exchange);
    spec.ranks = 2;
    spec.options.safeguards.on_not_finite = OnNotFinite::skip;
    spec.options.learning_rate.base = 1e30;
    spec.options.test_every_epochs = 0;
    const std::string text = reports_of({spec}, data.pair)[0];
    EXPECT_EQ(lines_of(text, "step 10: left out"), "step 10: left out\n") << text;
    EXPECT_NE(lines_of(text, "ended").find(" at step 11 on every rank, "), std::string::npos) << text;
    EXPECT_NE(lines_of(text, "ended").find(", and 10 steps in a row were skipped: "), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tutti
