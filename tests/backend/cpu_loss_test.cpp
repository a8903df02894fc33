#include "tutti/base/error.hpp"

#include "backend/loss_contract.hpp"

namespace tutti::testing_support {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, LossContract, ::testing::Values(LossBackend{"cpu", [] { return make_cpu_backend(); }}));

TEST(CpuLoss, NamesALabelThatIsNoClass) {
  const auto backend = make_cpu_backend();
  const auto stream = backend->make_stream();
  const auto layer = backend->make_softmax_loss(backend->plain_activation({2, 3}));
  const std::vector<float> logits(6);
  const std::vector<std::int32_t> labels{0, 3};
  std::vector<std::int64_t> sums(LossSums::kFigures);
  try {
    layer->run(*stream,
               {logits.data(), labels.data(), 1, {sums.data(), {LossSums::kFigures}, ElementType::i64}, nullptr});
    FAIL() << "a label beyond the classes was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.source(), ErrorSource::input);
    EXPECT_NE(std::string(error.what()).find("sample 1 of a batch has the label 3"), std::string::npos) << error.what();
  }
}

TEST(CpuLoss, RefusesSmoothingThatLeavesNothingOfTheLabel) {
  const auto backend = make_cpu_backend();
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 3}), 1.0), Error);
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 3}), -0.1), Error);
}

TEST(CpuLoss, RefusesLogitsThatAreNoClassesPerSample) {
  const auto backend = make_cpu_backend();
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 3, 4, 4})), Error);
  EXPECT_THROW(backend->make_softmax_loss(backend->plain_activation({2, 0})), Error);
}

}  // namespace
}  // namespace tutti::testing_support
