// Whole trainings on the stand-in: they match the CPU and give the same bits in every order of streams and blocks, and
// every wait between streams is necessary.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/error.hpp"

#include "standin/control.hpp"
#include "standin/finding.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"
#include "train/training_run.hpp"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace tutti::standin {
namespace {

// lenet's layers, with fewer channels.
NetworkSpec small_lenet() {
  return parse_model(R"(
name = "small-lenet"
layer = [
  {name = "conv1", type = "conv2d", channels = 5, kernel = 3, relu = true},
  {name = "pool1", type = "max-pool2d", kernel = 2},
  {name = "conv2", type = "conv2d", channels = 6, kernel = 3, relu = true},
  {name = "pool2", type = "max-pool2d", kernel = 2},
  {name = "dense1", type = "linear", units = 12, relu = true},
  {name = "dense2", type = "linear", units = "classes"},
]
)",
                     "small_lenet");
}

// A residual block behind a stem.
NetworkSpec tiny_resnet() {
  return parse_model(R"(
name = "tiny-resnet"
layer = [
  {name = "stem.conv", type = "conv2d", channels = 4, kernel = 3, padding = 1},
  {name = "stem.norm", type = "batch-norm", relu = true},
  {name = "block.shortcut", type = "conv2d", channels = 8, kernel = 1, stride = 2},
  {name = "block.conv", type = "conv2d", channels = 8, kernel = 3, stride = 2, padding = 1, input = "stem.norm"},
  {name = "block.norm", type = "batch-norm", add = true, relu = true, residual = "block.shortcut"},
  {name = "pool", type = "global-average-pool"},
  {name = "head", type = "linear", units = "classes"},
]
)",
                     "tiny_resnet");
}

struct Training {
  std::string name;
  NetworkSpec model;
  std::string data;
  std::int64_t batch_size = 6;
  int parts = 1;
  int max_workers = 1;
  BatchNorm batch_norm = BatchNorm::part;
  int steps_ahead = 1;
  bool records = true;
  bool stored = true;   // the images are in device memory
  bool audits = false;  // a part of every step is computed twice
  bool recipe = false;  // options of a recipe: averages, factors, views, a layer that is frozen
  std::string augment = "none";
  std::vector<double> class_weights{};
  std::uint64_t orders = 10;  // times TUTTI_ORDERS
};

void PrintTo(const Training& training, std::ostream* out) { *out << training.name; }

constexpr const char* kGray = "synthetic:16x1x10x10:3";
constexpr const char* kColored = "synthetic:16x3x8x8:3";

std::vector<Training> trainings() {
  return {
      {.name = "lenet", .model = small_lenet(), .data = kGray, .steps_ahead = 2, .orders = 30},
      {.name = "lenet_side_by_side",
       .model = small_lenet(),
       .data = kGray,
       .parts = 3,
       .max_workers = 2,
       .stored = false},
      {.name = "resnet", .model = tiny_resnet(), .data = kColored, .parts = 2, .orders = 12},
      {.name = "resnet_audited", .model = tiny_resnet(), .data = kColored, .parts = 3, .audits = true, .orders = 6},
      {.name = "resnet_of_many_blocks",
       .model = tiny_resnet(),
       .data = "synthetic:48x3x8x8:3",
       .batch_size = 24,
       .orders = 4},
      {.name = "resnet_global",
       .model = tiny_resnet(),
       .data = kColored,
       .parts = 3,
       .batch_norm = BatchNorm::global,
       .records = false,
       .orders = 6},
      {.name = "resnet_recipe", .model = tiny_resnet(), .data = kColored, .parts = 2, .recipe = true, .orders = 6},
      {.name = "resnet_mixed",
       .model = tiny_resnet(),
       .data = kColored,
       .parts = 2,
       .augment = "mixup:1",
       .class_weights = {1, 0.5, 2}},
      {.name = "resnet_unrecorded", .model = tiny_resnet(), .data = kColored, .steps_ahead = 0, .records = false},
  };
}

std::vector<Training> large_trainings() {
  return {{.name = "lenet", .model = built_in_model("lenet"), .data = "synthetic:16x1x16x16:3"},
          {.name = "resnet", .model = small_resnet(), .data = "synthetic:16x3x16x16:3", .parts = 2},
          {.name = "resnet_global",
           .model = small_resnet(),
           .data = "synthetic:16x3x16x16:3",
           .parts = 2,
           .batch_norm = BatchNorm::global},
          {.name = "recipe", .model = small_resnet(), .data = "synthetic:16x3x16x16:3", .parts = 2, .recipe = true},
          {.name = "resnet_mixed",
           .model = small_resnet(),
           .data = "synthetic:16x3x16x16:3",
           .parts = 2,
           .augment = "shift:2,trivial,erase:0.5,mixup:1,cutmix:1",
           .class_weights = {1, 0.5, 2}}};
}

TrainerOptions options_of(const Training& training) {
  TrainerOptions options{.batch_size = training.batch_size,
                         .num_parts = training.parts,
                         .batch_norm = training.batch_norm,
                         .max_workers = training.max_workers,
                         .epochs = 2,
                         .steps = 6,
                         .steps_ahead = training.steps_ahead};
  options.recipe.augment = parse_augment(training.augment);
  options.class_weights = training.class_weights;
  if (!training.class_weights.empty()) options.label_smoothing = 0.1;
  options.learning_rate.base = 0.01;
  options.bucket_bytes = 4096;
  if (training.recipe) {
    options.optimizer.weight_decay = 0.1;
    options.optimizer.lr_factors = {{"*/shift", 0, 8}, {"head", 1, 0.5}};
    options.optimizer.decay_factors = {{"*/shift", 0, 0.125}};
    options.average = {.decay = 0.9, .lookahead = 2};
    options.views = Views::shifts;
  }
  if (training.audits) {
    options.exchange.kind = Exchange::exact;
    options.safeguards.audit_every_steps = 1;
  }
  return options;
}

// Data that is not uploaded to the device, so that each batch is copied through pinned memory.
class Streamed : public Dataset {
 public:
  explicit Streamed(const Dataset& data) : data_(data) {}
  const DatasetInfo& info() const override { return data_.info(); }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override { data_.read(samples, batch); }
  std::size_t resident_bytes() const override { return data_.resident_bytes(); }
  std::uint64_t digest() const override { return data_.digest(); }

 private:
  const Dataset& data_;
};

class Device {
 public:
  Device(const Training& training, std::unique_ptr<Backend> backend, const TrainerOptions& options)
      : backend_(std::move(backend)),
        communicator_(make_solo_communicator(backend_.get())),
        data_(open_small(training.data)),
        streamed_(*data_.pair.train),
        network_(training.model, data_.pair.train->info().image, data_.pair.train->info().classes,
                 training.recipe ? std::vector<std::string>{"stem*"} : std::vector<std::string>{}),
        trainer_({.backend = *backend_,
                  .communicator = *communicator_,
                  .network = network_,
                  .train = training.stored ? *data_.pair.train : static_cast<const Dataset&>(streamed_),
                  .test = data_.pair.test.get()},
                 options, {.configuration = "c", .model = "m", .versions = "v"}) {}

  Recorder run() {
    Recorder seen;
    trainer_.run(seen);
    return seen;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  OwnedData data_;
  Streamed streamed_;
  Network network_;
  Trainer trainer_;
};

CudaOptions gpu_options(const Training& training) {
  return {.device = 0, .precision = Precision::fp32, .search_plans = true, .use_graphs = training.records};
}

std::unique_ptr<Backend> make_gpu(const Training& training) {
  return tutti_cuda_library().make_backend(gpu_options(training));
}

std::vector<double> losses(const Training& training, std::unique_ptr<Backend> backend) {
  TrainerOptions options = options_of(training);
  options.log_every_steps = 1;
  const Recorder seen = Device(training, std::move(backend), options).run();
  std::vector<double> each;
  for (const IntervalReport& interval : seen.intervals) each.push_back(interval.train.mean_loss());
  for (const EpochReport& epoch : seen.epochs) each.push_back(epoch.test->mean_loss());
  return each;
}

// The outcome of a run: the weights and the reports.
std::string outcome(const Training& training, std::unique_ptr<Backend> backend) {
  const Recorder seen = Device(training, std::move(backend), options_of(training)).run();
  std::string text;
  for (const EpochReport& epoch : seen.epochs) {
    text += fmt::format("{:016x} {} {} ", epoch.weights_digest, epoch.train.loss_quanta, epoch.test->loss_quanta);
  }
  return text;
}

std::string outcome(const Training& training, std::uint64_t seed) {
  set_order(seed);
  return outcome(training, make_gpu(training));
}

class Losses : public testing::TestWithParam<Training> {};
INSTANTIATE_TEST_SUITE_P(OnTheStandIn, Losses, testing::ValuesIn(large_trainings()),
                         [](const auto& given) { return given.param.name; });

TEST_P(Losses, AreTheCpus) {
  const std::vector<double> expected = losses(GetParam(), make_cpu_backend());
  const std::vector<double> given = losses(GetParam(), make_gpu(GetParam()));
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t step = 0; step < given.size(); ++step) EXPECT_NEAR(given[step], expected[step], 1e-3) << step;
}

class Orders : public testing::TestWithParam<Training> {};
INSTANTIATE_TEST_SUITE_P(OnTheStandIn, Orders, testing::ValuesIn(trainings()),
                         [](const auto& given) { return given.param.name; });

TEST_P(Orders, OfStreamsAndBlocksChangeNoBit) {
  const char* times = std::getenv("TUTTI_ORDERS");
  const std::uint64_t orders = GetParam().orders * (times == nullptr ? 1 : std::stoull(times));
  const std::string expected = outcome(GetParam(), 0);
  for (std::uint64_t seed = 1; seed <= orders; ++seed) {
    set_host_threads(seed % 4 == 1 ? 3 : 1);
    ASSERT_EQ(outcome(GetParam(), seed), expected) << seed;
  }
  set_host_threads(1);
  EXPECT_EQ(allocations(), 0U);
}

// Whether the outcome differs in some order, or the run fails, without the n-th wait of one stream for another.
bool needs_wait(const Training& training, std::int64_t n, const std::string& expected) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    ignore_wait(n);
    try {
      if (outcome(training, seed) != expected) return true;
    } catch (const Error&) {
      return true;  // no longer finite
    }
  }
  return false;
}

// The first wait of the first step is for a buffer that is not in use yet.
TEST(Waits, BetweenStreamsAreAllNeededAfterTheFirstStep) {
  const Training training{.name = "", .model = small_lenet(), .data = "synthetic:54x1x10x10:3", .steps_ahead = 2};
  const std::int64_t before = waits_so_far();
  const std::string expected = outcome(training, 0);
  const std::int64_t of_evaluation = 2;
  const std::int64_t waits = waits_so_far() - before - of_evaluation;
  constexpr std::int64_t kOfFirstStep = 1;
  ASSERT_GT(waits, kOfFirstStep);
  for (std::int64_t wait = kOfFirstStep + 1; wait <= waits; ++wait) {
    EXPECT_TRUE(needs_wait(training, wait, expected)) << wait << " of " << waits;
  }
  ignore_wait(0);
}

// Trainings whose graphs differ: more blocks of the same kernels are the same graph.
std::vector<Training> trainings_of_one_size() {
  std::vector<Training> all = trainings();
  std::erase_if(all, [](const Training& training) { return training.batch_size > Training().batch_size; });
  return all;
}

// The warnings of a training in which `uncapturable` of the two engines of each convolution fail while they are
// captured.
std::vector<std::string> warnings_with(int uncapturable, const Training& training, bool searches,
                                       const std::string& expected) {
  std::vector<std::string> warnings;
  CudaOptions options = gpu_options(training);
  options.search_plans = searches;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  ::setenv("TUTTI_STANDIN_UNCAPTURABLE", fmt::format("{}", uncapturable).c_str(), 1);
  EXPECT_EQ(outcome(training, tutti_cuda_library().make_backend(options)), expected);
  ::unsetenv("TUTTI_STANDIN_UNCAPTURABLE");
  return warnings;
}

TEST(EnginesThatCannotBeCaptured, AreNotChosenByTheSearchOrEnqueuedWithoutGraphsAfterOneWarning) {
  for (const Training& training : trainings_of_one_size()) {
    const std::string expected = outcome(training, 0);
    EXPECT_THAT(warnings_with(1, training, true, expected), testing::IsEmpty()) << training.name;
    for (const int uncapturable : {1, 2}) {
      const auto warnings = warnings_with(uncapturable, training, uncapturable == 2, expected);
      EXPECT_EQ(warnings.size(), training.records ? 1U : 0U) << training.name << fmt::format("{}", warnings);
      for (const std::string& warning : warnings) {
        EXPECT_THAT(warning, mentions("could not be recorded as a CUDA graph"));
      }
    }
  }
  EXPECT_EQ(allocations(), 0U);
}

// A first step makes the weights overflow.
TEST(NotFinite, IsReportedForItsStepHoweverFarAheadTheHostIs) {
  for (const int steps_ahead : {0, 1, 2}) {
    const Training training{.name = "", .model = small_lenet(), .data = kGray, .steps_ahead = steps_ahead};
    TrainerOptions options = options_of(training);
    options.learning_rate.base = 1e30;
    EXPECT_THAT(thrown_by([&] { Device(training, make_gpu(training), options).run(); }),
                reports(ErrorSource::not_finite, "is no longer a finite number at step 2"));
    options.safeguards.on_not_finite = OnNotFinite::skip;
    options.epochs = 6;
    options.steps = 12;
    options.test_every_epochs = 0;
    EXPECT_THAT(thrown_by([&] { Device(training, make_gpu(training), options).run(); }).what(),
                mentions("10 steps in a row were skipped"));
  }
}

TEST(Memory, OfHostAndDeviceIsSeparate) {
  separate_memory(true);
  for (const Training& training : trainings_of_one_size()) static_cast<void>(outcome(training, 1));
  separate_memory(false);
}

}  // namespace
}  // namespace tutti::standin
