#include "progress.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti {
namespace {

LossSums sums(double mean_loss, std::int64_t correct, std::int64_t samples) {
  return {.loss_quanta = static_cast<std::int64_t>(mean_loss * LossSums::kLossScale * static_cast<double>(samples)),
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

TEST(EpochLine, ReportsThatThereIsNoTestSet) {
  const EpochReport report{.epoch = 2, .epochs = 2, .train = sums(1, 1, 2), .seconds = 1};
  EXPECT_NE(epoch_line(report).find("test acc -, "), std::string::npos);
}

TEST(GuessingText, IsForALossAndAnAccuracyThatAreThoseOfGuessingAfterTheFirstHundredSteps) {
  const auto text = [](double loss, std::int64_t correct, std::int64_t step) {
    return not_learning_warning({.step = step, .train = sums(loss, correct, 1000)}, 10,
                                {.base = 0.05, .warmup_epochs = 0.25});
  };
  EXPECT_EQ(text(2.3047, 98, 157),
            "after 157 steps the training loss, 2.3047, is no better than guessing among 10 classes (2.3026): the "
            "network learns nothing; start again with --lr below 0.05 or --warmup-epochs above 0.25");
  EXPECT_FALSE(text(7.5, 98, 157).empty()) << "first it was worse";
  EXPECT_TRUE(text(2.3047, 98, 99).empty());
  EXPECT_TRUE(text(2.25, 98, 157).empty());
  EXPECT_TRUE(text(2.3047, 160, 157).empty());
}

TEST(GuessingText, IsForAGuessedTestSetAtTheEndOfAShortEpochThatStartedWell) {
  const auto text = [](double test_loss, std::int64_t correct, std::int64_t step, double warmup_epochs = 0.25) {
    EpochReport report{.epoch = 1, .step = step, .train = sums(3.0785, 5912, 20000)};
    report.test = sums(test_loss, correct, 4000);
    return not_learning_warning(report, 10, {.base = 0.2, .warmup_epochs = warmup_epochs});
  };
  EXPECT_EQ(text(2.3125, 400, 40),
            "after 40 steps the test loss, 2.3125, and accuracy, 0.1000, are no better than guessing among 10 classes "
            "(2.3026 and 0.1000); unless the next epochs learn, start again with --lr below 0.2 or --warmup-epochs "
            "above 0.25");
  EXPECT_FALSE(text(2.3125, 450, 40).empty()) << "within the noise";
  EXPECT_TRUE(text(2.3125, 500, 40).empty());
  EXPECT_TRUE(text(2.2, 400, 40).empty());
  EXPECT_TRUE(text(2.3125, 400, 19).empty()) << "too early";
  EXPECT_TRUE(text(2.3125, 400, 40, 0.5).empty()) << "running statistics have not converged in the warm-up";
}

TEST(GuessingText, SaysThatTheNetworkIsOverfittingIfOnlyTheTrainingImagesAreKnown) {
  const auto text = [](double train_loss, std::int64_t train_correct, std::int64_t epoch) {
    EpochReport report{.epoch = epoch, .step = 300, .train = sums(train_loss, train_correct, 100)};
    report.test = sums(1.9, 12, 24);
    return not_learning_warning(report, 4, {.base = 0.1});
  };
  EXPECT_EQ(text(0.31, 90, 20),
            "after 300 steps the training accuracy is 0.9000, the test accuracy 0.5000, and the test loss, 1.9000, no "
            "better than guessing (1.3863): the network is overfitting; use more images, other --augment steps, or "
            "--init-from the weights of another run");
  EXPECT_TRUE(text(0.31, 90, 2).empty()) << "the running statistics of batch norms may not have converged";
  EXPECT_TRUE(text(1.1, 55, 20).empty()) << "it learns slowly";
}

TEST(ProgressBar, ShowsStepsAndTimes) {
  const StepProgress progress{.epoch = 2, .epochs = 5, .step_in_epoch = 10, .steps_in_epoch = 40};
  EXPECT_EQ(progress_text(progress, sums(0.5871, 1, 64), 0.4),
            "epoch 2/5 [#####...............] 10/40, loss 0.5871, 12 sec left");
  EXPECT_EQ(progress_text(progress, {}, 0), "epoch 2/5 [#####...............] 10/40") << "the first step";
  EXPECT_EQ(progress_text(progress, {}, 0.4), "epoch 2/5 [#####...............] 10/40, 12 sec left");
}

StepProgress at_step(std::int64_t step) {
  return {.epoch = 2, .epochs = 10, .step = step, .steps = 3130, .samples = 100};
}

TEST(ProgressLines, ArePrintedAtLeastEveryThirtySeconds) {
  ProgressLines lines;
  std::vector<double> printed;
  for (int step = 1; step <= 100; ++step) {
    lines.count(at_step(step));
    const double now = 0.7 * step;
    if (!lines.is_due(now)) continue;
    printed.push_back(now);
    lines.text(now, {});
  }
  ASSERT_EQ(printed.size(), 2U);
  EXPECT_NEAR(printed[0], 29.4, 0.01);
  EXPECT_NEAR(printed[1], 58.8, 0.01);
}

TEST(ProgressLines, ArePrintedAfterEveryStepThatTakesLonger) {
  ProgressLines lines;
  for (int step = 1; step <= 3; ++step) {
    lines.count(at_step(step));
    EXPECT_TRUE(lines.is_due(40.0 * step));
    lines.text(40.0 * step, {});
  }
}

TEST(ProgressLines, ShowLossSpeedAndTimeLeft) {
  ProgressLines lines;
  for (int step = 1; step <= 10; ++step) lines.count(at_step(step));
  EXPECT_EQ(lines.text(5, sums(0.5871, 1, 64)), "epoch 2/10, step 10/3130, loss 0.5871, 200 images/s, 26 min left");
  for (int step = 11; step <= 20; ++step) lines.count(at_step(step));
  EXPECT_EQ(lines.text(105, {}), "epoch 2/10, step 20/3130, 10 images/s, 4 h 32 min left");
}

}  // namespace
}  // namespace tutti
