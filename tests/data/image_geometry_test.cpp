#include "data/image_geometry.hpp"

#include "tutti/backend/backend.hpp"
#include "tutti/base/digest.hpp"
#include "tutti/base/random.hpp"
#include "tutti/data/batch_loader.hpp"

#include "data/pixel_writer.hpp"
#include "reference/image_resize.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace tutti {
namespace {

constexpr std::array kCrops{Crop::none, Crop::crop_flip, Crop::pad_crop_flip, Crop::resized_crop, Crop::shift};

std::vector<std::uint8_t> noise(std::int64_t bytes, std::uint32_t item = 0) {
  RandomSequence random(7, {.item = item, .purpose = random_purpose("noise")});
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(bytes));
  for (auto& pixel : pixels) pixel = static_cast<std::uint8_t>(random.next() >> 24);
  return pixels;
}

ImageRecipe recipe_of(Crop augment, std::int64_t channels, std::int64_t side) {
  ImageRecipe recipe;
  recipe.augment = augment;
  if (augment == Crop::shift) recipe.augment.shift = std::min<std::int64_t>(2, side - 1);
  recipe.image = Shape{channels, side, side};
  recipe.seed = 3;
  return recipe;
}

std::vector<float> written(const ImageRecipe& recipe, const ImageView& image, const SampleKey& key) {
  std::vector<float> values(static_cast<std::size_t>(recipe.image.elements()));
  PixelWriter(recipe).write(image, plan_image(recipe, image.shape, key), values);
  return values;
}

// A reference that applies the steps one by one, with random numbers drawn in the order in image_geometry.hpp.
class SlowRecipe {
 public:
  SlowRecipe(const ImageRecipe& recipe, const SampleKey& key)
      : recipe_(recipe),
        side_(recipe.image[1]),
        random_(recipe.seed, {.item = static_cast<std::uint32_t>(key.sample),
                              .when = static_cast<std::uint32_t>(key.epoch),
                              .purpose = random_purpose("augment")}) {}

  reference::Plane operator()(const reference::Plane& image) {
    const Crop crop = recipe_.augment.crop;
    if (crop == Crop::none) return fitted(image);
    const bool flip = random_.next() >= 0x80000000u;
    if (crop == Crop::shift) return shifted(image);
    const reference::Plane piece = crop == Crop::crop_flip       ? cropped(image)
                                   : crop == Crop::pad_crop_flip ? padded(image)
                                                                 : pieced(image);
    return flip ? reference::mirrored(piece) : piece;
  }

 private:
  static reference::Plane short_side_resized(const reference::Plane& image, std::int64_t side) {
    const std::int64_t shorter = std::min(image.height, image.width);
    return reference::resize(image, image.height * side / shorter, image.width * side / shorter);
  }
  std::int64_t draw(std::int64_t room) {
    return static_cast<std::int64_t>(random_.below(static_cast<std::uint32_t>(room + 1)));
  }
  reference::Plane drawn_cut(const reference::Plane& image, std::int64_t height, std::int64_t width) {
    const std::int64_t top = draw(image.height - height);
    return reference::cut(image, {top, draw(image.width - width)}, height, width);
  }
  reference::Plane fitted(const reference::Plane& image) const {
    if (image.height == side_ && image.width == side_) return image;
    const double short_side = static_cast<double>(side_) * (recipe_.keeps_short_side ? 1.0 : 8.0 / 7);
    const auto large = short_side_resized(image, std::llround(short_side));
    return reference::cut(large, {(large.height - side_) / 2, (large.width - side_) / 2}, side_, side_);
  }
  reference::Plane cropped(const reference::Plane& image) {
    const std::int64_t larger = std::llround(static_cast<double>(side_) * 5 / 4);
    const auto large = short_side_resized(image, larger);
    const std::int64_t cut = std::llround(static_cast<double>(larger) * std::sqrt(0.64 + 0.36 * random_.uniform()));
    return reference::resize(drawn_cut(large, cut, cut), side_, side_);
  }
  reference::Plane padded(const reference::Plane& image) {
    const std::int64_t frame = side_ / 8;
    const auto framed = reference::cut(fitted(image), {-frame, -frame}, side_ + 2 * frame, side_ + 2 * frame);
    return drawn_cut(framed, side_, side_);
  }
  reference::Plane shifted(const reference::Plane& image) {
    const std::int64_t frame = recipe_.augment.shift;
    return drawn_cut(reference::framed_by_reflection(fitted(image), frame), side_, side_);
  }
  reference::Plane pieced(const reference::Plane& image) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double area = static_cast<double>(image.height * image.width) * (0.08 + 0.92 * random_.uniform());
      const double ratio = std::exp(std::log(4.0 / 3) * (2 * random_.uniform() - 1));
      const std::int64_t width = std::llround(std::sqrt(area * ratio));
      const std::int64_t height = std::llround(std::sqrt(area / ratio));
      if (std::min(width, height) < 1 || width > image.width || height > image.height) continue;
      return reference::resize(drawn_cut(image, height, width), side_, side_);
    }
    const std::int64_t longest = std::max<std::int64_t>(1, std::min(image.height, image.width) * 4 / 3);
    const std::int64_t height = std::min(image.height, longest);
    const std::int64_t width = std::min(image.width, longest);
    const reference::Corner center{(image.height - height) / 2, (image.width - width) / 2};
    return reference::resize(reference::cut(image, center, height, width), side_, side_);
  }

  const ImageRecipe& recipe_;
  std::int64_t side_;
  RandomSequence random_;
};

TEST(Augmentation, MatchesTheStepsAppliedOneByOneInDouble) {
  const std::vector<std::pair<Shape, std::int64_t>> cases{
      {Shape{3, 32, 32}, 32}, {Shape{1, 28, 28}, 28},  {Shape{1, 50, 70}, 24}, {Shape{1, 150, 100}, 16},
      {Shape{2, 5, 7}, 8},    {Shape{1, 1, 1}, 3},     {Shape{1, 3, 90}, 12},  {Shape{1, 90, 2}, 12},
      {Shape{1, 20, 30}, 1},  {Shape{1, 100, 100}, 7},
  };
  for (const Crop augment : kCrops) {
    for (const auto& [shape, side] : cases) {
      ImageRecipe recipe = recipe_of(augment, shape[0], side);
      const auto pixels = noise(shape.elements());
      for (std::int64_t sample = 0; sample < 6; ++sample) {
        const SampleKey key{.sample = sample, .epoch = sample % 2};
        recipe.keeps_short_side = sample % 3 == 0;
        const auto values = written(recipe, {pixels.data(), shape}, key);
        for (std::int64_t channel = 0; channel < shape[0]; ++channel) {
          reference::Plane plane(shape[1], shape[2]);
          const auto* const first = pixels.data() + channel * shape[1] * shape[2];
          plane.values.assign(first, first + shape[1] * shape[2]);
          const reference::Plane expected = SlowRecipe(recipe, key)(plane);
          for (std::int64_t i = 0; i < side * side; ++i) {
            ASSERT_NEAR(values[static_cast<std::size_t>(channel * side * side + i)],
                        expected.values[static_cast<std::size_t>(i)] / 255, 1e-4)
                << name_of(augment) << " " << shape.text() << " to " << side << ", sample " << sample << ", at " << i;
          }
        }
      }
    }
  }
}

TEST(Augmentation, KeepsAUniformColorToTheLastBit) {
  for (const Crop augment : {Crop::none, Crop::crop_flip, Crop::resized_crop, Crop::shift}) {
    for (const auto& [height, width] : {std::pair<std::int64_t, std::int64_t>{32, 32}, {47, 61}, {300, 200}, {9, 9}}) {
      ImageRecipe recipe = recipe_of(augment, 1, 32);
      recipe.statistics = {{0.4914}, {0.2023}};
      for (const int pixel : {0, 1, 77, 255}) {
        const std::vector<std::uint8_t> pixels(static_cast<std::size_t>(height * width),
                                               static_cast<std::uint8_t>(pixel));
        const float expected = (static_cast<float>(pixel) / 255.0f - 0.4914f) / 0.2023f;
        for (std::int64_t sample = 0; sample < 20; ++sample) {
          const auto values = written(recipe, {pixels.data(), Shape{1, height, width}}, {.sample = sample});
          ASSERT_EQ(values, std::vector<float>(values.size(), expected)) << name_of(augment);
        }
      }
    }
  }
}

TEST(Augmentation, DoesNotChangeAnImageOfTheRightSize) {
  const auto pixels = noise(3 * 20 * 20);
  const auto values = written(recipe_of(Crop::none, 3, 20), {pixels.data(), Shape{3, 20, 20}}, {});
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(pixels[i]) / 255.0f);
}

TEST(Augmentation, FlipsOneImageInTwo) {
  for (const Crop augment : {Crop::crop_flip, Crop::pad_crop_flip, Crop::resized_crop}) {
    const ImageRecipe recipe = recipe_of(augment, 1, 32);
    int flipped = 0;
    for (std::int64_t sample = 0; sample < 10'000; ++sample) {
      const ImagePlan plan = plan_image(recipe, recipe.image, {.sample = sample, .epoch = sample % 3});
      flipped += plan.columns.mirrored ? 1 : 0;
      ASSERT_FALSE(plan.rows.mirrored);
    }
    EXPECT_NEAR(flipped, 5000, 200);  // four standard deviations
  }
}

TEST(Augmentation, FlipsVerticallyWithoutChangingWhatElseIsDrawn) {
  for (const char* const with : {"none", "resized-crop", "flip"}) {
    const ImageRecipe recipe{.augment = parse_augment(with), .image = Shape{1, 8, 8}, .statistics = {}, .seed = 3};
    ImageRecipe turned = recipe;
    turned.augment.vertical_flip = true;
    int both = 0;
    int flipped = 0;
    for (std::int64_t sample = 0; sample < 2000; ++sample) {
      const SampleKey key{.sample = sample, .epoch = 1};
      const ImagePlan plan = plan_image(recipe, recipe.image, key);
      ImagePlan other = plan_image(turned, recipe.image, key);
      flipped += other.rows.mirrored ? 1 : 0;
      both += other.rows.mirrored && other.columns.mirrored ? 1 : 0;
      other.rows.mirrored = false;
      ASSERT_TRUE(other.rows == plan.rows && other.columns == plan.columns) << with;
    }
    EXPECT_NEAR(flipped, 1000, 100) << with;
    EXPECT_NEAR(both, recipe.augment.flip == Flip::random ? 500 : 0, 80) << with;
  }
}

TEST(Augmentation, FlipsARandomHalfOfTheImagesInOneEpochAndTheOthersInTheNext) {
  ImageRecipe recipe = recipe_of(Crop::shift, 1, 32);
  const auto is_flipped = [&](std::int64_t sample, std::int64_t epoch) {
    return plan_image(recipe, recipe.image, {.sample = sample, .epoch = epoch}).columns.mirrored;
  };
  ASSERT_FALSE(is_flipped(0, 0) || is_flipped(0, 1));
  recipe.augment.flip = Flip::alternate;
  int flipped = 0;
  for (std::int64_t sample = 0; sample < 10'000; ++sample) {
    const bool first = is_flipped(sample, 0);
    flipped += first ? 1 : 0;
    for (std::int64_t epoch = 1; epoch < 5; ++epoch) ASSERT_EQ(is_flipped(sample, epoch), first == (epoch % 2 == 0));
  }
  EXPECT_NEAR(flipped, 5000, 200);
}

TEST(Augmentation, ShiftsByEveryDistanceAlike) {
  const ImageRecipe recipe = recipe_of(Crop::shift, 1, 32);
  std::map<std::pair<std::int64_t, std::int64_t>, int> counts;
  for (std::int64_t sample = 0; sample < 25'000; ++sample) {
    const auto [rows, columns] = plan_image(recipe, recipe.image, {.sample = sample, .epoch = sample % 3});
    ++counts[{rows.shift, columns.shift}];
  }
  EXPECT_EQ(counts.size(), 25U);
  for (const auto& [shift, count] : counts) EXPECT_NEAR(count, 1000, 130) << shift.first << " " << shift.second;
}

TEST(Augmentation, CropsSquaresOfUniformAreaAtAnyPosition) {
  const ImageRecipe recipe = recipe_of(Crop::crop_flip, 1, 2048);
  constexpr int kSamples = 20'000;
  std::array<int, 9> areas{};
  std::array<int, 4> places{};
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const auto [rows, columns] = plan_image(recipe, recipe.image, {.sample = sample});
    ASSERT_EQ(rows.resized, 2560);
    ASSERT_EQ(rows.crop.size(), columns.crop.size());
    ASSERT_TRUE(rows.crop.begin >= 0 && rows.crop.end <= 2560 && columns.crop.begin >= 0 && columns.crop.end <= 2560);
    const double side = static_cast<double>(rows.crop.size()) / 2560;
    ++areas[static_cast<std::size_t>(std::clamp((side * side - 0.64) / 0.04, 0.0, 8.0))];
    const bool low = 2 * rows.crop.begin > 2560 - rows.crop.size();
    const bool right = 2 * columns.crop.begin > 2560 - columns.crop.size();
    ++places[(low ? 2U : 0U) + (right ? 1U : 0U)];
  }
  for (const int count : areas) EXPECT_NEAR(count, kSamples / 9, 190);
  for (const int count : places) EXPECT_NEAR(count, kSamples / 4, 250);
}

TEST(Augmentation, DrawsCropsOfEveryAllowedAreaAndRatio) {
  const ImageRecipe recipe = recipe_of(Crop::resized_crop, 1, 8);
  double least = 1;
  double most = 0;
  for (std::int64_t sample = 0; sample < 5000; ++sample) {
    const auto [rows, columns] = plan_image(recipe, Shape{1, 1000, 1000}, {.sample = sample});
    const auto height = static_cast<double>(rows.crop.size());
    const auto width = static_cast<double>(columns.crop.size());
    ASSERT_GT(width / height, 0.745);
    ASSERT_LT(width / height, 1.342);
    least = std::min(least, height * width / 1e6);
    most = std::max(most, height * width / 1e6);
  }
  EXPECT_NEAR(least, 0.08, 0.005);
  EXPECT_NEAR(most, 1, 0.03);
}

TEST(AxisWeights, AddUpToOneExactlyAndStayInside) {
  RandomSequence random(11, {.purpose = random_purpose("axes")});
  AxisWeights weights;
  for (int turn = 0; turn < 3000; ++turn) {
    AxisPlan plan;
    plan.input = random.between(1, 60);
    plan.resized = random.between(1, 60);
    plan.kept = {0, plan.resized};
    plan.crop.begin = random.between(0, static_cast<std::int32_t>(plan.resized) - 1);
    plan.crop.end =
        random.between(static_cast<std::int32_t>(plan.crop.begin) + 1, static_cast<std::int32_t>(plan.resized));
    plan.output = random.between(1, 60);
    plan.mirrored = turn % 2 == 1;
    weights.plan(plan);
    ASSERT_EQ(std::ssize(weights.first()), plan.output);
    for (std::int64_t i = 0; i < plan.output; ++i) {
      const std::int64_t first = weights.first()[static_cast<std::size_t>(i)];
      ASSERT_GE(first, weights.used().begin);
      ASSERT_LE(first + weights.taps(), weights.used().end);
      float sum = 0;
      for (std::int64_t tap = 0; tap < weights.taps(); ++tap) {
        ASSERT_GE(weights.weights(tap)[i], 0.0f);
        sum += weights.weights(tap)[i];
      }
      ASSERT_EQ(sum, 1.0f);
    }
    ASSERT_GE(weights.used().begin, 0);
    ASSERT_LE(weights.used().end, plan.input);
  }
}

// The same on every processor and compiler.
TEST(Augmentation, HasTheseBitsEverywhere) {
  const std::array<std::string, 5> expected{"a921bda4fcc0db47", "647eb80fa82eeec6", "71f50266b843ef2f",
                                            "8170f85f3a373632", "0be1bad55c734257"};
  for (std::size_t a = 0; a < kCrops.size(); ++a) {
    ImageRecipe recipe = recipe_of(kCrops[a], 3, 32);
    recipe.statistics = {{0.4914, 0.4822, 0.4465}, {0.2023, 0.1994, 0.2010}};
    std::uint64_t sum = 0;
    for (std::int64_t sample = 0; sample < 64; ++sample) {
      const std::int64_t side = sample % 2 == 0 ? 32 : 40 + sample;
      const auto pixels = noise(3 * side * side, static_cast<std::uint32_t>(sample));
      const auto values =
          written(recipe, {pixels.data(), Shape{3, side, side}}, {.sample = sample, .epoch = sample % 5});
      sum += digest("sample " + std::to_string(sample), std::span(values));
    }
    EXPECT_EQ(digest_text(sum), expected[a]) << name_of(kCrops[a]);
  }
}

TEST(Augmentation, NeedsNoMoreTapsThanTheWidestPlan) {
  for (const Crop augment : kCrops) {
    for (std::int64_t item = 0; item < 400; ++item) {
      RandomSequence random(11, {.item = static_cast<std::uint32_t>(item)});
      const auto draw = [&](std::uint32_t most) { return static_cast<std::int64_t>(1 + random.below(most)); };
      ImageRecipe recipe = recipe_of(augment, 1, draw(24));
      recipe.keeps_short_side = item % 3 == 0;
      const bool fits = random.below(4) == 0;
      const Shape image = fits ? recipe.image : Shape{1, draw(90), draw(90)};
      const ImagePlan widest = widest_plan(recipe, image);
      for (std::int64_t sample = 0; sample < 20; ++sample) {
        const ImagePlan plan = plan_image(recipe, image, {.sample = sample});
        AxisWeights axis;
        axis.plan(plan.rows);
        ASSERT_LE(axis.taps(), AxisWeights::most_taps(widest.rows)) << name_of(augment) << ", " << image.text();
        axis.plan(plan.columns);
        ASSERT_LE(axis.taps(), AxisWeights::most_taps(widest.columns)) << name_of(augment) << ", " << image.text();
      }
    }
  }
  const ImagePlan copies = widest_plan(recipe_of(Crop::pad_crop_flip, 3, 32), Shape{3, 32, 32});
  EXPECT_EQ(AxisWeights::most_taps(copies.rows), 1);
  EXPECT_EQ(AxisWeights::most_taps(copies.columns), 1);
}

struct GeometryRun {
  int ranks = 1;
  int readers = 1;
  int steps_ahead = 0;
};

// The digest of two epochs' batches, in the order of the global batches.
std::uint64_t digest_of_epochs(const Dataset& data, const ImageRecipe& recipe, const GeometryRun& loading) {
  constexpr int kParts = 4;
  const auto backend = make_cpu_backend();
  std::uint64_t sum = 0;
  for (int rank = 0; rank < loading.ranks; ++rank) {
    const LoaderPlan plan{.batch_size = 90,
                          .num_parts = kParts,
                          .parts = PartMap(kParts, loading.ranks).parts_of(rank),
                          .order = {Shuffle::global, 5},
                          .steps_ahead = loading.steps_ahead,
                          .readers = loading.readers,
                          .recipe = recipe};
    BatchLoader loader(data, *backend, plan);
    const auto stream = backend->make_stream();
    const std::int64_t steps = loader.sampler().steps(0) + loader.sampler().steps(1);
    for (std::int64_t step = 0; step < steps; ++step) {
      for (const Batch& batch : loader.next(*stream).batches) {
        const auto name = std::to_string(step) + " part " + std::to_string(batch.part);
        sum += digest(name, std::span<const float>(host_f32(batch.images)));
        sum += digest(name, std::span<const std::int32_t>(host_i32(batch.labels)));
      }
    }
  }
  return sum;
}

TEST(Augmentation, IsEqualAtAnyNumberOfRanksReadersAndStepsAhead) {
  const DatasetInfo info{.name = "noise", .image = Shape{3, 16, 16}, .classes = 2, .samples = 333};
  const auto images = noise(333 * 3 * 16 * 16);
  std::vector<std::int32_t> labels(333);
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 2);
  const MemoryDataset data(info, images, labels);
  const ImageRecipe recipe = recipe_of(Crop::crop_flip, 3, 16);
  for (const GeometryRun& loading :
       {GeometryRun{1, 1, 0}, GeometryRun{1, 4, 2}, GeometryRun{2, 2, 1}, GeometryRun{3, 1, 1}, GeometryRun{4, 3, 1}}) {
    EXPECT_EQ(digest_text(digest_of_epochs(data, recipe, loading)), "349c35e4d6efb050")
        << loading.ranks << " ranks, " << loading.readers << " readers, " << loading.steps_ahead << " steps ahead";
  }
}

}  // namespace
}  // namespace tutti
