#include "tutti/train/epoch_line.hpp"

#include "tutti/train/progress_bar.hpp"

#include <gtest/gtest.h>

namespace tutti {
namespace {

LossSums sums(double mean_loss, std::int64_t correct, std::int64_t samples) {
  return {.loss_steps = static_cast<std::int64_t>(mean_loss * LossSums::kLossScale * static_cast<double>(samples)),
          .correct = correct,
          .samples = samples};
}

TEST(EpochLine, ReadsAsTheTutorialsDo) {
  EpochReport report{.epoch = 1, .epochs = 10, .step = 235, .train = sums(0.5871, 7912, 10000)};
  report.test = sums(0.4, 8434, 10000);
  report.seconds = 3.2;
  report.learning_rate = 0.1;
  EXPECT_EQ(epoch_line(report),
            "epoch  1/10, loss 0.5871, train acc 0.7912, test acc 0.8434, time 3.2 sec, 3125 images/s, lr 0.1");
}

TEST(EpochLine, SaysSoWhenThereIsNoTestSet) {
  const EpochReport report{.epoch = 2, .epochs = 2, .train = sums(1, 1, 2), .seconds = 1};
  EXPECT_NE(epoch_line(report).find("test acc -, "), std::string::npos);
}

TEST(ProgressBar, ShowsHowFarAndHowLong) {
  const std::string text = progress_text({.epoch = 2, .epochs = 5, .step_in_epoch = 10, .steps_in_epoch = 30}, 0.4);
  EXPECT_EQ(text, "epoch 2/5 [##########....................] 10/30, 8 sec left");
}

}  // namespace
}  // namespace tutti
