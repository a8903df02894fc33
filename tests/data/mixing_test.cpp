#include "tutti/backend/backend.hpp"
#include "tutti/data/batch_loader.hpp"

#include "data/image_operations.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

namespace tutti {
namespace {

const Shape kImage{2, 6, 8};

// 211 images of one color each: no two samples have the same.
class Colors : public MemoryDataset {
 public:
  Colors() : MemoryDataset(info_of(), kPixels, kLabels) {}

 private:
  static DatasetInfo info_of() { return {.name = "colors", .image = kImage, .classes = 211, .samples = 211}; }
  static std::vector<std::uint8_t> all_pixels() {
    std::vector<std::uint8_t> all;
    for (int sample = 0; sample < 211; ++sample) all.insert(all.end(), 96, static_cast<std::uint8_t>(sample + 5));
    return all;
  }
  static std::vector<std::int32_t> all_labels() {
    std::vector<std::int32_t> all;
    for (std::int32_t sample = 0; sample < 211; ++sample) all.push_back(sample);
    return all;
  }
  static inline const std::vector<std::uint8_t> kPixels = all_pixels();
  static inline const std::vector<std::int32_t> kLabels = all_labels();
};

float color_of(std::int32_t label) { return static_cast<float>(label + 5) / 255.0f; }

// Calls `check` with each image of some epochs and its two labels, the first one's share, and whether it has a partner.
// Several readers write a part of 70 or 71 samples, which are more than they write at a time.
template <class Check>
void each_image(const char* augment, Check check) {
  const Colors data;
  const auto backend = make_cpu_backend();
  LoaderPlan plan;
  plan.batch_size = 211;
  plan.num_parts = 3;
  plan.parts = {0, 3};
  plan.readers = 3;
  plan.recipe.augment = parse_augment(augment);
  BatchLoader loader(data, *backend, plan);
  const auto stream = backend->make_stream();
  for (int step = 0; step < 20; ++step) {
    for (const Batch& batch : loader.next(*stream).batches) {
      for (std::int64_t row = 0; row < batch.samples; ++row) {
        const auto i = static_cast<std::size_t>(row);
        const bool has_partner = (row ^ 1) < batch.samples;
        ASSERT_EQ(host_i32(batch.labels.others)[i], host_i32(batch.labels)[has_partner ? i ^ 1 : i]);
        check(host_f32(batch.images).subspan(i * 96, 96), host_i32(batch.labels)[i], host_i32(batch.labels.others)[i],
              host_f32(batch.labels.shares)[i], has_partner);
      }
    }
  }
}

TEST(Mixing, OfMixupAddsImagesAndSharesLabelsOfWhichTheFirstHasMost) {
  each_image("mixup:0.5", [](auto image, std::int32_t label, std::int32_t other, float share, bool has_partner) {
    ASSERT_GE(share, 0.5f);
    ASSERT_EQ(label != other, has_partner);
    ASSERT_TRUE(has_partner || share == 1);
    for (const float value : image) {
      ASSERT_NEAR(value, share * color_of(label) + (1 - share) * color_of(other), 1e-6f);
    }
  });
}

TEST(Mixing, OfCutmixPastesARectangleWhoseAreaIsTheShare) {
  each_image("cutmix:1", [](auto image, std::int32_t label, std::int32_t other, float share, bool) {
    const auto is = [](std::int32_t of) { return [of](float value) { return value == color_of(of); }; };
    ASSERT_TRUE(std::ranges::all_of(image, [&](float value) { return is(label)(value) || is(other)(value); }));
    const auto own = static_cast<float>(std::ranges::count_if(image, is(label)));
    ASSERT_NEAR(own, 96 * share, label == other ? 96 : 1e-3);
  });
}

TEST(Mixing, DrawsSharesFromTheBetaDistributionAndACoinBetweenTheTwo) {
  ImageRecipe recipe{.augment = parse_augment("mixup:0.2,cutmix:1"), .image = Shape{3, 1000, 1000}, .statistics = {}};
  constexpr int kSteps = 20'000;
  int cuts = 0;
  double squares = 0;
  double cut_area = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Mixing mixing = draw_mixing(recipe, step % 3, step);
    cuts += mixing.cuts ? 1 : 0;
    (mixing.cuts ? cut_area : squares) += mixing.cuts ? 1 - mixing.share : std::pow(mixing.share - 0.5, 2);
  }
  EXPECT_NEAR(cuts, kSteps / 2, 280);
  EXPECT_NEAR(squares / (kSteps - cuts), 0.25 / 1.4, 0.003);
  // A square of side s around a random pixel keeps (1 - s / 4)^2 of its area; s^2 is uniform.
  EXPECT_NEAR(cut_area / cuts, 1.0 / 2 - 1.0 / 5 + 1.0 / 48, 0.006);
  recipe.augment.mixup = 0;
  for (int step = 0; step < 100; ++step) EXPECT_TRUE(draw_mixing(recipe, 0, step).cuts);
}

}  // namespace
}  // namespace tutti
