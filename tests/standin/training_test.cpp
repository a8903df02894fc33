// Whole trainings on the stand-in: what the CPU gives, the same bits in every order of streams, and all the waits between
// streams are needed for it.

#include "tutti/base/error.hpp"

#include "backend/cuda/backend.hpp"
#include "standin/control.hpp"
#include "standin/finding.hpp"
#include "train/training_run.hpp"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <ostream>
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

struct Training {
  std::string name;
  NetworkSpec model;
  std::string data;
  int parts = 1;
  int side_by_side = 1;
  int steps_ahead = 1;
  bool records = true;
};

void PrintTo(const Training& training, std::ostream* out) { *out << training.name; }

constexpr std::uint64_t kOrders = 100;  // of each training
constexpr const char* kGrey = "synthetic:16x1x10x10:3";
constexpr const char* kColoured = "synthetic:16x3x8x8:3";

std::vector<Training> trainings() {
  return {
      {.name = "lenet", .model = small_lenet(), .data = kGrey, .steps_ahead = 2},
      {.name = "lenet_side_by_side", .model = small_lenet(), .data = kGrey, .parts = 3, .side_by_side = 2},
      {.name = "resnet", .model = small_resnet(), .data = kColoured, .parts = 2},
      {.name = "resnet_unrecorded", .model = small_resnet(), .data = kColoured, .steps_ahead = 0, .records = false},
  };
}

std::vector<Training> large_trainings() {
  return {{.name = "lenet", .model = built_in_model("lenet"), .data = "synthetic:16x1x16x16:3"},
          {.name = "resnet", .model = small_resnet(), .data = "synthetic:16x3x16x16:3", .parts = 2}};
}

TrainerOptions options_of(const Training& training) {
  TrainerOptions options;
  options.batch_size = 6;
  options.num_parts = training.parts;
  options.side_by_side = training.side_by_side;
  options.steps_ahead = training.steps_ahead;
  options.steps = 6;
  options.epochs = 2;
  options.learning_rate.base = 0.01;
  options.bucket_bytes = 4096;
  return options;
}

class Device {
 public:
  Device(const Training& training, std::unique_ptr<Backend> backend, const TrainerOptions& options)
      : backend_(std::move(backend)),
        communicator_(make_solo_communicator(backend_.get())),
        data_(open_small(training.data)),
        network_(training.model, data_.pair.train->info().image, data_.pair.train->info().classes),
        trainer_({.backend = *backend_,
                  .communicator = *communicator_,
                  .network = network_,
                  .train = *data_.pair.train,
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
  Network network_;
  Trainer trainer_;
};

std::unique_ptr<Backend> make_gpu(const Training& training) {
  return cuda::make_backend(
      {.device = 0, .precision = Precision::fp32, .search_plans = true, .record = training.records});
}

std::vector<double> losses(const Training& training, std::unique_ptr<Backend> backend) {
  TrainerOptions options = options_of(training);
  options.log_every_steps = 1;
  const Recorder seen = Device(training, std::move(backend), options).run();
  std::vector<double> each;
  for (const StretchReport& stretch : seen.stretches) each.push_back(stretch.train.mean_loss());
  return each;
}

// All that a run leaves: the weights and what it reports.
std::string outcome(const Training& training, std::uint64_t seed) {
  set_order(seed);
  const Recorder seen = Device(training, make_gpu(training), options_of(training)).run();
  std::string text;
  for (const EpochReport& epoch : seen.epochs) {
    text += fmt::format("{:016x} {} {} ", epoch.weights_digest, epoch.train.loss_steps, epoch.test->loss_steps);
  }
  return text;
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

TEST_P(Orders, OfStreamsChangeNoBit) {
  const std::string expected = outcome(GetParam(), 0);
  for (std::uint64_t seed = 1; seed <= kOrders; ++seed) ASSERT_EQ(outcome(GetParam(), seed), expected) << seed;
  EXPECT_EQ(allocations(), 0U);
}

// Steps, orders and bits are those of the test before.
TEST(Waits, AreAllNeeded) {
  const Training training = trainings().front();
  const std::string expected = outcome(training, 0);
  const std::int64_t before = waits_so_far();
  static_cast<void>(outcome(training, 0));
  const std::int64_t waits = waits_so_far() - before;
  ASSERT_GT(waits, 0);
  std::vector<std::int64_t> needless;
  for (std::int64_t wait = 1; wait <= waits; ++wait) {
    bool shows = false;
    for (std::uint64_t seed = 1; seed <= 60 && !shows; ++seed) {
      ignore_wait(wait);
      try {
        shows = outcome(training, seed) != expected;
      } catch (const Error&) {
        shows = true;  // no longer finite
      }
    }
    if (!shows) needless.push_back(wait);
  }
  ignore_wait(0);
  EXPECT_TRUE(needless.empty()) << fmt::format("{} of {}: {}", needless.size(), waits, fmt::join(needless, " "));
}

TEST(Memory, OfHostAndDeviceAreKeptApart) {
  separate_memory(true);
  for (const Training& training : trainings()) static_cast<void>(outcome(training, 1));
  separate_memory(false);
}

}  // namespace
}  // namespace tutti::standin
