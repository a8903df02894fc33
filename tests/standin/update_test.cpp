// The update that reads unfinished gradients and writes packed filters gives the bits of the three passes that it
// replaces: a run with graphs uses it, one without does not.

#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/error.hpp"
#include "tutti/watch/fault_spec.hpp"

#include "standin/control.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"
#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace tutti::standin {
namespace {

// Channels that are padded, groups, a depthwise convolution, biases, norms, and a dense layer over images of more
// positions than a tile has.
NetworkSpec all_filters() {
  return parse_model(R"(
name = "all-filters"
layer = [
  {name = "stem", type = "conv2d", channels = 16, kernel = 3, padding = 1, bias = false},
  {name = "norm", type = "batch-norm", relu = true},
  {name = "groups", type = "conv2d", channels = 16, kernel = 3, padding = 1, groups = 2},
  {name = "depthwise", type = "conv2d", channels = 16, kernel = 3, padding = 1, groups = 16, bias = false},
  {name = "odd", type = "conv2d", channels = 5, kernel = 5, padding = 2, relu = true},
  {name = "dense", type = "linear", units = 9, relu = true},
  {name = "head", type = "linear", units = "classes"},
]
)",
                     "all_filters");
}

struct Update {
  std::string name;
  OptimizerOptions optimizer{};
  Precision precision = Precision::bf16;
  std::vector<std::string> frozen{};
  AverageOptions average{};
};

void PrintTo(const Update& update, std::ostream* out) { *out << update.name; }

std::vector<Update> updates() {
  const OptimizerOptions adamw{.kind = OptimizerKind::adamw, .weight_decay = 0.1};
  return {{.name = "sgd"},
          {.name = "sgd_fp32", .precision = Precision::fp32},
          {.name = "sgd_without_momentum", .optimizer = {.momentum = 0}},
          {.name = "nesterov", .optimizer = {.weight_decay = 0.1, .nesterov = true}},
          {.name = "sgd_averaged", .average = {.decay = 0.9, .lookahead = 2}},
          {.name = "sgd_by_rules",
           .optimizer = {.weight_decay = 0.1,
                         .exempts_norms_and_biases = true,
                         .lr_factors = {{"*/shift", 0, 8}, {"odd", 1, 0.5}, {"groups", 2, 0}},
                         .decay_factors = {{"dense", 0, 0.125}}}},
          {.name = "sgd_frozen", .frozen = {"stem", "odd"}},
          {.name = "sgd_from_a_later_layer", .optimizer = {.lr_factors = {{"stem", 1, 0}, {"norm*", 1, 0}}}},
          {.name = "adamw", .optimizer = adamw},
          {.name = "adamw_fp32", .optimizer = adamw, .precision = Precision::fp32}};
}

class GpuRun {
 public:
  GpuRun(const Update& update, bool with_graphs)
      : backend_(tutti_cuda_library().make_backend(
            {.precision = update.precision, .search_plans = false, .use_graphs = with_graphs})),
        communicator_(make_solo_communicator(backend_.get())),
        data_(open_small("synthetic:16x3x26x26:3")),
        network_(all_filters(), data_.pair.train->info().image, data_.pair.train->info().classes, update.frozen),
        trainer_({.backend = *backend_,
                  .communicator = *communicator_,
                  .network = network_,
                  .train = *data_.pair.train,
                  .test = nullptr},
                 options_of(update), {.configuration = "c", .model = "m", .versions = "v"}) {}

  // The digests after each of some steps.
  std::vector<std::uint64_t> digests(int steps) {
    std::vector<std::uint64_t> all;
    for (int step = 0; step < steps; ++step) {
      trainer_.step();
      trainer_.synchronize();
      ReplicaState& state = trainer_.replica().state();
      all.insert(all.end(), {state.weights_digest(), state.statistics_digest().value_or(0),
                             state.averages_digest().value_or(0), state.optimizer_digest()});
    }
    return all;
  }

  // The error of the steps after one weight has become very large.
  std::string error_with_a_large_weight(const std::string& tensor) {
    digests(6);
    flip(trainer_.replica().state(), {.block = "weights", .tensor = tensor, .element = 1, .bit = 30});
    return thrown_by([&] { digests(3); }).what();
  }

 private:
  static TrainerOptions options_of(const Update& update) {
    TrainerOptions options;
    options.batch_size = 6;  // the last batch of an epoch has 4 samples
    options.epochs = 6;
    options.learning_rate.base = 0.01;
    options.optimizer = update.optimizer;
    options.average = update.average;
    return options;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Communicator> communicator_;
  OwnedData data_;
  Network network_;
  Trainer trainer_;
};

// Launches of the kernels that do all at once.
std::int64_t updates_so_far() {
  std::int64_t launches = 0;
  for (const auto& [kind, count] : enqueued_so_far().work) {
    if (kind.starts_with("BlockTable<UpdateEntry<")) launches += count;
  }
  return launches;
}

class Updates : public testing::TestWithParam<Update> {};
INSTANTIATE_TEST_SUITE_P(OnTheStandIn, Updates, testing::ValuesIn(updates()),
                         [](const auto& given) { return given.param.name; });

TEST_P(Updates, AtOnceGiveTheBitsOfThreePasses) {
  constexpr int kSteps = 9;
  const std::int64_t before = updates_so_far();
  const std::vector<std::uint64_t> expected = GpuRun(GetParam(), false).digests(kSteps);
  EXPECT_EQ(updates_so_far(), before);
  EXPECT_EQ(GpuRun(GetParam(), true).digests(kSteps), expected);
  EXPECT_GE(updates_so_far(), before + kSteps / 2);
}

// Norms of gradients need all of them first.
TEST(UpdateAtOnce, IsNotForClippedGradientsNorForLars) {
  const std::int64_t before = updates_so_far();
  GpuRun({.name = "", .optimizer = {.clip_norm = 1}}, true).digests(6);
  GpuRun({.name = "", .optimizer = {.kind = OptimizerKind::lars}}, true).digests(6);
  EXPECT_EQ(updates_so_far(), before);
}

TEST(UpdateAtOnce, FindsTheGradientsThatAreNotFinite) {
  for (const char* tensor : {"stem/weight", "odd/weight"}) {
    const std::string expected = GpuRun({}, false).error_with_a_large_weight(tensor);
    EXPECT_THAT(expected, mentions("is no longer a finite number"));
    EXPECT_EQ(GpuRun({}, true).error_with_a_large_weight(tensor), expected);
  }
}

}  // namespace
}  // namespace tutti::standin
