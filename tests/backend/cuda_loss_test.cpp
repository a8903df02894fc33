#include "tutti/backend/cuda_library.hpp"
#include "tutti/base/error.hpp"

#include "backend/cuda/format.hpp"
#include "backend/loss_contract.hpp"

#include <algorithm>

namespace tutti::testing_support {
namespace {

std::unique_ptr<Backend> make_cuda() { return tutti_cuda_library().make_backend({}); }

INSTANTIATE_TEST_SUITE_P(Cuda, LossContract, ::testing::Values(LossBackend{"cuda", make_cuda}));

// One loss layer with its memory, to be run again and again.
class LossBench {
 public:
  LossBench(Device& device, const ActivationSpec& logits)
      : device_(device),
        spec_(logits),
        layer_(device.backend().make_softmax_loss(logits, {.smoothing = 0.1})),
        logits_(device.backend().allocate(logits.bytes)),
        gradient_(device.backend().allocate(logits.bytes)),
        labels_(device.backend().allocate(static_cast<std::size_t>(logits.shape[0]) * sizeof(std::int32_t))),
        sums_(device.backend().allocate(LossSums::kFields * sizeof(std::int64_t))),
        scale_(device.backend().allocate(sizeof(float))) {
    device.upload(scale_.view({1}, ElementType::f32), std::vector<float>{1.0f / 64});
  }

  // The fields of all calls so far.
  std::vector<std::int64_t> run(const std::vector<float>& logits, const std::vector<std::int32_t>& labels) {
    const Tensor sums = sums_.view({LossSums::kFields}, ElementType::i64);
    device_.set_values(spec_, logits_, logits);
    const Labels given{labels_.view({spec_.shape[0]}, ElementType::i32)};
    device_.upload(given, labels);
    device_.poison(gradient_);
    layer_->run(device_.stream(),
                {logits_.data(), given, static_cast<const float*>(scale_.data()), sums, gradient_.data()});
    return device_.download<std::int64_t>(sums);
  }
  std::vector<float> gradient() { return device_.values_of(spec_, gradient_); }
  std::vector<std::uint8_t> gradient_bytes() {
    return device_.download<std::uint8_t>(
        gradient_.view({static_cast<std::int64_t>(gradient_.bytes())}, ElementType::u8));
  }

 private:
  Device& device_;
  ActivationSpec spec_;
  std::unique_ptr<LossLayer> layer_;
  Buffer logits_;
  Buffer gradient_;
  Buffer labels_;
  Buffer sums_;
  Buffer scale_;
};

class CudaLoss : public ::testing::Test {
 protected:
  static std::vector<std::int32_t> labels_for(const Shape& shape) {
    std::vector<std::int32_t> labels;
    for (std::int64_t n = 0; n < shape[0]; ++n) labels.push_back(static_cast<std::int32_t>(n * 7 % shape[1]));
    return labels;
  }
  // Logits that bf16 holds exactly.
  static std::vector<float> coarse_floats(std::int64_t count) {
    auto values = random_floats(count, "coarse", 60);
    for (float& value : values) value = std::round(value) / 8;
    return values;
  }

  Device device_{make_cuda()};
};

TEST_F(CudaLoss, WithinTheNetworkEqualsThatOfPlainLogits) {
  for (const Shape& shape : {Shape{1, 1}, Shape{9, 10}, Shape{300, 3}, Shape{16, 1003}}) {
    const auto logits = coarse_floats(shape.elements());
    const auto labels = labels_for(shape);
    LossBench plain(device_, device_.backend().plain_activation(shape));
    const auto sums = plain.run(logits, labels);
    LossBench within(device_, cuda::activation_of(shape, ElementType::f32));
    EXPECT_EQ(within.run(logits, labels), sums) << shape.text();
    EXPECT_TRUE(same_bits(within.gradient(), plain.gradient())) << shape.text();
    Device bf16(tutti_cuda_library().make_backend({.precision = Precision::bf16}));
    LossBench coarse(bf16, cuda::activation_of(shape, ElementType::bf16));
    EXPECT_EQ(coarse.run(logits, labels), sums) << shape.text();
    const auto exact = plain.gradient();
    EXPECT_TRUE(close(coarse.gradient(), std::vector<double>(exact.begin(), exact.end()), 0x1p-8)) << shape.text();
  }
}

TEST_F(CudaLoss, LeavesZerosBehindTheGradientOfTheClasses) {
  Device bf16(tutti_cuda_library().make_backend({.precision = Precision::bf16}));
  LossBench bench(bf16, cuda::activation_of({5, 10}, ElementType::bf16));
  bench.run(coarse_floats(50), {0, 1, 2, 3, 9});
  const auto bytes = bench.gradient_bytes();
  ASSERT_EQ(bytes.size(), 5u * 16 * 2);
  for (std::size_t sample = 0; sample < 5; ++sample) {
    const auto* const padding = bytes.data() + sample * 32 + 20;
    EXPECT_TRUE(std::all_of(padding, padding + 12, [](std::uint8_t byte) { return byte == 0; })) << sample;
  }
}

TEST_F(CudaLoss, AddsCallAfterCallOfOneLayer) {
  const Shape shape{70, 10};
  LossBench bench(device_, cuda::activation_of(shape, ElementType::f32));
  const auto once = bench.run(coarse_floats(700), labels_for(shape));
  auto all = once;
  for (int call = 2; call < 5; ++call) {
    for (std::size_t i = 0; i < all.size(); ++i) all[i] += once[i];
    EXPECT_EQ(bench.run(coarse_floats(700), labels_for(shape)), all) << call;
  }
}

TEST_F(CudaLoss, CountsOneCallHoweverManyOfItsSamplesAreNotFinite) {
  LossBench bench(device_, cuda::activation_of({40, 2}, ElementType::f32));
  std::vector<float> logits(80, 0.0f);
  for (std::size_t i = 0; i < logits.size(); i += 2) logits[i] = INFINITY;
  EXPECT_EQ(bench.run(logits, std::vector<std::int32_t>(40, 1)), (std::vector<std::int64_t>{0, 0, 40, 1, 0, 0, 0, 0}));
}

TEST_F(CudaLoss, CountsALabelThatIsNoClassAsNotFinite) {
  LossBench bench(device_, cuda::activation_of({3, 2}, ElementType::f32));
  const auto sums = bench.run({1, 0, 0, 1, 1, 0}, {0, 2, 0});
  EXPECT_EQ(sums, (std::vector<std::int64_t>{0, 2, 3, 1, 0, 0, 0, 0}));
  EXPECT_EQ(bench.run({1, 0, 0, 1, 1, 0}, {0, -1, 0})[3], 2);
}

TEST_F(CudaLoss, RefusesWhatTheCpuRefuses) {
  Backend& backend = device_.backend();
  EXPECT_THROW(backend.make_softmax_loss(backend.plain_activation({2, 3}), {.smoothing = 1.0}), Error);
  EXPECT_THROW(backend.make_softmax_loss(backend.plain_activation({2, 3}), {.smoothing = -0.1}), Error);
  EXPECT_THROW(backend.make_softmax_loss(backend.plain_activation({2, 3, 4, 4})), Error);
  EXPECT_THROW(backend.make_softmax_loss(backend.plain_activation({2, 0})), Error);
}

}  // namespace
}  // namespace tutti::testing_support
