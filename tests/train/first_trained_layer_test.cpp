#include "tutti/storage/train_state.hpp"
#include "tutti/train/optimizer.hpp"

#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tutti {
namespace {

std::size_t first_of(const NetworkSpec& spec, const std::string& factors, std::int64_t epoch,
                     const std::vector<std::string>& frozen = {}) {
  const Network network(spec, Shape{1, 8, 8}, 3, frozen);
  return first_trained_layer(network, {.lr_factors = parse_lr_factors(factors)}, epoch);
}

TEST(FirstTrainedLayer, HasARateThatIsNotZeroFromTheEpochOn) {
  const NetworkSpec mlp = built_in_model("mlp");
  const std::size_t second = first_of(mlp, "dense1=0", 0);
  EXPECT_GT(second, 0U);
  EXPECT_EQ(first_of(mlp, "", 0), 0U);
  EXPECT_EQ(first_of(mlp, "dense1/bias=0", 0), 0U);
  EXPECT_EQ(first_of(mlp, "dense1@3=0", 2), 0U);
  EXPECT_EQ(first_of(mlp, "dense1@3=0", 3), second);
  EXPECT_EQ(first_of(mlp, "dense1=0,dense1@3=1", 0), 0U) << "the optimizer's state goes on until it is trained again";
  EXPECT_EQ(first_of(mlp, "", 0, {"dense1"}), second);
}

TEST(FirstTrainedLayer, HasStatisticsUnlessItIsFrozen) {
  EXPECT_EQ(first_of(small_resnet(), "stem*=0", 0), 1U);
  EXPECT_EQ(first_of(small_resnet(), "stem*=0", 0, {"stem.norm"}), 2U);
}

TEST(FirstTrainedLayer, IsWhereTheBackwardPassOfARunEnds) {
  std::vector<TrainState> states;
  for (const char* factors : {"dense1=0", "dense1=0,dense1@1=1"}) {
    TrainerOptions options;
    options.batch_size = 16;
    options.optimizer.lr_factors = parse_lr_factors(factors);
    TrainingRun run(options);
    for (int step = 0; step < 3; ++step) run.trainer.step();
    states.push_back(run.trainer.snapshot());
  }
  for (std::size_t i = 0; i < states[0].parameters.size(); ++i) {
    EXPECT_EQ(states[0].parameters[i].values, states[1].parameters[i].values) << states[0].parameters[i].name;
  }
  for (std::size_t i = 0; i < states[0].optimizer.size(); ++i) {
    const std::vector<float>& velocity = states[0].optimizer[i].values;
    const std::string& name = states[0].optimizer[i].name;
    const bool is_skipped = name.find("dense1") != std::string::npos;
    const bool is_zero = std::ranges::all_of(velocity, [](float value) { return value == 0; });
    EXPECT_EQ(is_zero, is_skipped) << name;
    EXPECT_EQ(velocity == states[1].optimizer[i].values, !is_skipped) << name;
  }
}

}  // namespace
}  // namespace tutti
