#include "tutti/data/image_recipe.hpp"

#include "tutti/base/error.hpp"

#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

DatasetInfo photographs(std::int64_t height, std::int64_t width) {
  return {.name = "photographs", .image = Shape{3, height, width}};
}

RecipeRequest request_of(Crop augment, const std::string& normalize, std::int64_t size = 0) {
  return {.augment = augment, .normalize = normalize, .image_size = size, .seed = 9};
}

std::string refusal(const RecipeRequest& request, const DatasetInfo& data) {
  const Error error = thrown_by([&] { make_recipe(request, data); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  return error.what();
}

TEST(ImageRecipe, HasTheSizeOfTheImagesUnlessAnotherIsGiven) {
  EXPECT_EQ(make_recipe(request_of(Crop::none, "none"), photographs(20, 30)).image, (Shape{3, 20, 30}));
  const ImageRecipe recipe = make_recipe(request_of(Crop::resized_crop, "none", 64), photographs(0, 0));
  EXPECT_EQ(recipe.image, (Shape{3, 64, 64}));
  EXPECT_EQ(recipe.augment.crop, Crop::resized_crop);
  EXPECT_EQ(recipe.seed, 9U);
  EXPECT_TRUE(recipe.statistics.mean.empty());
}

TEST(ImageRecipe, RefusesSizesThatItCannotKnow) {
  EXPECT_NE(refusal(request_of(Crop::none, "none"), photographs(0, 0)).find("differ in size: give --image-size"),
            std::string::npos);
  EXPECT_NE(refusal(request_of(Crop::crop_flip, "none"), photographs(20, 30)).find("are 20 x 30: give --image-size"),
            std::string::npos);
}

TEST(ImageRecipe, RefusesToShiftAnImageOutOfItself) {
  EXPECT_NE(refusal({.augment = parse_augment("shift:8"), .normalize = "none"}, photographs(8, 8))
                .find("--augment shift:8: images of 8 x 8 can be shifted by at most 7 pixels"),
            std::string::npos);
}

TEST(ImageRecipe, RefusesToChangeColorsOfImagesThatAreNeitherGrayNorColored) {
  DatasetInfo data = photographs(8, 8);
  data.image = Shape{2, 8, 8};
  for (const char* const augment : {"trivial", "jitter:0.4", "randaugment:2/9"}) {
    EXPECT_NE(refusal({.augment = parse_augment(augment), .normalize = "none"}, data).find("1 or 3 channels"),
              std::string::npos)
        << augment;
  }
}

TEST(ImageRecipe, ReadsStepsOfAnAugmentationInAnyOrder) {
  const auto is = [](const char* text, Crop crop, Flip flip, std::int64_t shift = 0) {
    const Augment augment = parse_augment(text);
    return augment.crop == crop && augment.flip == flip && augment.shift == shift;
  };
  EXPECT_TRUE(is("none", Crop::none, Flip::none));
  EXPECT_TRUE(is("flip", Crop::none, Flip::random));
  EXPECT_TRUE(is("resized-crop", Crop::resized_crop, Flip::random));
  EXPECT_TRUE(is("pad-crop-flip,alternate-flip", Crop::pad_crop_flip, Flip::alternate));
  EXPECT_TRUE(is("alternate-flip,pad-crop-flip", Crop::pad_crop_flip, Flip::alternate));
  EXPECT_TRUE(is("shift:2", Crop::shift, Flip::none, 2));
  EXPECT_TRUE(is("flip, shift:31", Crop::shift, Flip::random, 31));
  const Augment all = parse_augment("trivial,erase:0.25,mixup:0.2,cutmix:1");
  EXPECT_TRUE(all.trivial && all.erase == 0.25 && all.crop == Crop::none && all.flip == Flip::none);
  EXPECT_TRUE(all.mixup == 0.2 && all.cutmix == 1);
  const Augment more = parse_augment("vertical-flip,rotate:30,jitter:0.4/0.3/0.2/0.1,randaugment:2/9");
  EXPECT_TRUE(more.vertical_flip && more.rotate == 30 && more.jitter == (ColorJitter{0.4, 0.3, 0.2, 0.1}));
  EXPECT_TRUE(more.rand_augment.operations == 2 && more.rand_augment.magnitude == 9);
  EXPECT_TRUE(parse_augment("vertical-flip").only_resamples());
  EXPECT_TRUE(parse_augment("resized-crop,scaled-decode").scaled_decode);
  EXPECT_FALSE(parse_augment("rotate:1").only_resamples());
  for (const char* wrong : {"",
                            "crop",
                            "flip,",
                            "flip,alternate-flip",
                            "crop-flip,shift:2",
                            "shift",
                            "shift:",
                            "shift:0",
                            "shift:-1",
                            "shift:2x",
                            "shift:1e3",
                            "flip:2",
                            "none:2",
                            "none,none",
                            "trivial:1",
                            "trivial,randaugment:1/1",
                            "randaugment",
                            "randaugment:0/9",
                            "randaugment:2/31",
                            "randaugment:2.5/9",
                            "rotate:0",
                            "rotate:181",
                            "jitter",
                            "jitter:0",
                            "jitter:x",
                            "jitter:0.1/0.1/0.1/0.6",
                            "jitter:1/1/1/0/1",
                            "vertical-flip:1",
                            "erase",
                            "erase:0",
                            "erase:1.1",
                            "mixup:0",
                            "mixup:nan",
                            "cutmix:-1",
                            "cutmix:1,cutmix:1"}) {
    EXPECT_NE(std::string(thrown_by([&] { parse_augment(wrong); }).what()).find("give none, or some of these"),
              std::string::npos)
        << wrong;
  }
}

TEST(ImageRecipe, NormalizesByOneNumberOrOnePerChannel) {
  const DatasetInfo data = photographs(8, 8);
  EXPECT_EQ(make_recipe(request_of(Crop::none, "0.5/0.25"), data).statistics,
            (ChannelStatistics{{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}}));
  EXPECT_EQ(make_recipe(request_of(Crop::none, "0.1,0.2,0.3/2"), data).statistics,
            (ChannelStatistics{{0.1, 0.2, 0.3}, {2, 2, 2}}));
  DatasetInfo known = data;
  known.statistics = {{0.4, 0.5, 0.6}, {0.1, 0.2, 0.3}};
  EXPECT_EQ(make_recipe(request_of(Crop::none, "auto"), known).statistics, known.statistics);
}

TEST(ImageRecipe, WritesStatisticsThatItReadsToTheLastBit) {
  EXPECT_EQ(normalize_text({}), "none");
  const ChannelStatistics odd{{1.0 / 3, 1e-7, 0}, {2.0 / 7, 1, 123456.789}};
  EXPECT_EQ(make_recipe(request_of(Crop::none, normalize_text(odd)), photographs(8, 8)).statistics, odd);
}

TEST(ImageRecipe, RefusesInvalidStatistics) {
  const DatasetInfo data = photographs(8, 8);
  for (const char* wrong :
       {"", "0.5", "0.5/", "/0.5", "0.5/0.5/0.5", "0.5,0.5/1", "x/1", "0.5/nan", "0.5 1/1", "0.5/1,"}) {
    EXPECT_NE(refusal(request_of(Crop::none, wrong), data).find("give none, auto or M/S"), std::string::npos) << wrong;
    EXPECT_NE(refusal(request_of(Crop::none, wrong), data).find("; is --data right?"), std::string::npos) << wrong;
  }
  EXPECT_NE(refusal(request_of(Crop::none, "0.5/0"), data).find("deviation of 0"), std::string::npos);
  EXPECT_NE(refusal(request_of(Crop::none, "0.5/1,-1,1"), data).find("deviation of 0"), std::string::npos);
  EXPECT_NE(refusal(request_of(Crop::none, "auto"), data).find("needs the mean and standard deviation"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
