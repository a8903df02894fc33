#include "train/norm_sums.hpp"

#include "tutti/base/random.hpp"

#include "train/training_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace tutti {
namespace {

double sum_of(const std::vector<double>& numbers) {
  std::vector<std::int64_t> digits(static_cast<std::size_t>(DigitSums::elements(1)));
  DigitSums sums(digits);
  for (const double number : numbers) sums.add({&number, 1});
  double sum = 0;
  sums.read({&sum, 1});
  return sum;
}

std::vector<double> random_numbers(int count) {
  RandomSequence random(1, {});
  std::vector<double> numbers;
  for (int i = 0; i < count; ++i) {
    numbers.push_back(std::ldexp(2 * random.uniform() - 1, static_cast<int>(random.below(100)) - 40));
  }
  return numbers;
}

TEST(DigitSums, OfOneNumberAreThatNumber) {
  for (const double number : random_numbers(1000)) EXPECT_EQ(sum_of({number}), number);
  const double largest = std::nextafter(DigitSums::kLimit, 0);
  for (const double number : {0.0, 1.0, -1.0, DigitSums::kUnit, largest, -largest}) EXPECT_EQ(sum_of({number}), number);
  EXPECT_EQ(sum_of({1e-300}), 0);
}

TEST(DigitSums, DoNotDependOnTheOrder) {
  std::vector<double> numbers = random_numbers(200);
  const double sum = sum_of(numbers);
  std::ranges::sort(numbers);
  EXPECT_EQ(sum_of(numbers), sum);
  std::ranges::reverse(numbers);
  EXPECT_EQ(sum_of(numbers), sum);
}

TEST(DigitSums, AreExactAlsoWhereNumbersCancel) {
  EXPECT_EQ(sum_of({0x1p72, 1.25, -0x1p72}), 1.25);
  EXPECT_EQ(sum_of({-0x1p50, 0x1p-60, 0x1p50}), 0x1p-60);
  EXPECT_EQ(sum_of(std::vector<double>(1 << 16, std::nextafter(DigitSums::kLimit, 0))),
            std::ldexp(std::nextafter(DigitSums::kLimit, 0), 16));
}

TEST(DigitSums, OfANumberThatIsTooLargeOrNotFiniteAreNotANumber) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double number : {DigitSums::kLimit, -kInfinity, kInfinity, std::nan("")}) {
    EXPECT_TRUE(std::isnan(sum_of({1, number, 2}))) << number;
  }
}

// Trainings of one rank.

struct Trained {
  std::vector<double> losses;  // the mean of each step
  std::uint64_t weights = 0;
  std::vector<float> statistics;
};

Trained train(TrainerOptions options, int parts, BatchNorm batch_norm, int steps) {
  options.num_parts = parts;
  options.batch_norm = batch_norm;
  options.steps = steps;
  options.log_every_steps = 1;
  TrainingRun run(options, {.name = "synthetic:203x3x12x12:5", .model = small_resnet()});
  Recorder recorder;
  run.trainer.run(recorder);
  Trained trained;
  for (const IntervalReport& interval : recorder.intervals) trained.losses.push_back(interval.train.mean_loss());
  trained.weights = run.trainer.weights_digest();
  for (const NamedArray& array : run.trainer.snapshot().statistics) {
    trained.statistics.insert(trained.statistics.end(), array.values.begin(), array.values.end());
  }
  return trained;
}

TrainerOptions slowly() {
  TrainerOptions options{.batch_size = 40, .epochs = 100};
  options.learning_rate.base = 1e-3;
  options.optimizer.momentum = 0;
  options.exchange.kind = Exchange::exact;
  return options;
}

double greatest_difference(const auto& one, const auto& other) {
  EXPECT_EQ(one.size(), other.size());
  double greatest = 0;
  for (std::size_t i = 0; i < one.size(); ++i) greatest = std::max(greatest, double{std::abs(one[i] - other[i])});
  return greatest;
}

TEST(GlobalBatchNorm, OfOnePartHasTheBitsOfItsOwn) {
  for (const Exchange exchange : {Exchange::exact, Exchange::ring}) {
    TrainerOptions options = slowly();
    options.exchange.kind = exchange;
    options.learning_rate.base = 0.1;
    const Trained own = train(options, 1, BatchNorm::part, 20);
    const Trained global = train(options, 1, BatchNorm::global, 20);
    EXPECT_EQ(global.weights, own.weights);
    EXPECT_EQ(global.statistics, own.statistics);
    EXPECT_EQ(global.losses, own.losses);
  }
}

// The last batch of an epoch has 3 samples, so that some parts are empty.
TEST(GlobalBatchNorm, TrainsAsOnePartDoesWhateverTheParts) {
  const Trained whole = train(slowly(), 1, BatchNorm::part, 50);
  for (const int parts : {2, 3, 4, 8}) {
    const Trained global = train(slowly(), parts, BatchNorm::global, 50);
    EXPECT_LT(greatest_difference(global.losses, whole.losses), 1e-5) << parts << " parts";
    EXPECT_LT(greatest_difference(global.statistics, whole.statistics), 1e-4) << parts << " parts";
    const Trained alone = train(slowly(), parts, BatchNorm::part, 50);
    EXPECT_GT(greatest_difference(alone.losses, whole.losses), 1e-3) << parts << " parts";
  }
}

}  // namespace
}  // namespace tutti
