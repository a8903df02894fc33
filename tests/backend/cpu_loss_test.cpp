#include "tutti/base/error.hpp"

#include "backend/loss_contract.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, LossContract, ::testing::Values(LossBackend{"cpu", [] { return make_cpu_backend(); }}));

TEST(LossSums, AreExactAndTheSameInAnyOrderWhateverTheLosses) {
  std::vector<double> losses;
  for (int i = 0; i < 200; ++i) losses.push_back(std::ldexp(1 + i % 7 * 0.125, i % 151 - 10));
  LossSums forwards;
  for (const double loss : losses) forwards.add_loss(loss);
  LossSums halves;
  for (std::size_t first : {1, 0}) {
    LossSums half;
    for (std::size_t i = losses.size() - 1 - first; i < losses.size(); i -= 2) half.add_loss(losses[i]);
    halves = halves + half;
  }
  EXPECT_EQ(halves, forwards);
  EXPECT_EQ(halves.not_finite, 0);
  LossSums rest = forwards;
  for (const double loss : losses) {
    LossSums one;
    one.add_loss(loss);
    EXPECT_EQ(one.loss(), loss);
    rest = rest - one;
  }
  EXPECT_EQ(rest, LossSums{});
}

// The sum of an epoch of 60,000 images with a mean loss of 2e7 once overflowed.
TEST(LossSums, DoNotOverflowInAnEpochOfLargeLosses) {
  LossSums sums{.samples = 60000};
  for (int call = 0; call < 60000; ++call) sums.add_loss(1.97e7);
  EXPECT_EQ(sums.mean_loss(), 1.97e7);
  sums.add_loss(std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(sums.mean_loss()));
}

TEST(CpuLoss, NamesALabelThatIsNoClass) {
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  const auto layer = backend->make_softmax_loss(backend->plain_activation({2, 3}));
  const std::vector<float> logits(6);
  std::vector<std::int32_t> labels{0, 3};
  std::vector<std::int64_t> sums(LossSums::kFields);
  const LossPass pass{logits.data(),
                      {{labels.data(), {2}, ElementType::i32}},
                      nullptr,
                      {sums.data(), {LossSums::kFields}, ElementType::i64},
                      nullptr};
  EXPECT_THAT(thrown_by([&] { layer->run(*stream, pass); }),
              reports(ErrorSource::input, "sample 1 of a batch has the label 3"));
}

TEST(CpuLoss, RefusesSmoothingThatLeavesNothingOfTheLabel) {
  const auto backend = make_cpu_backend();
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 3}), {.smoothing = 1.0}), Error);
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 3}), {.smoothing = -0.1}), Error);
}

TEST(CpuLoss, RefusesLogitsThatAreNoClassesPerSample) {
  const auto backend = make_cpu_backend();
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 3, 4, 4})), Error);
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 0})), Error);
}

}  // namespace
}  // namespace tutti::testing_support
