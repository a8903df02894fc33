#include "tutti/data/image_recipe.hpp"

#include "tutti/base/error.hpp"

#include "support/thrown.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

DatasetInfo photographs(std::int64_t height, std::int64_t width) {
  DatasetInfo info;
  info.name = "photographs";
  info.image = Shape{3, height, width};
  return info;
}

RecipeRequest request_of(Augment augment, const std::string& normalize, std::int64_t size = 0) {
  return {.augment = augment, .normalize = normalize, .image_size = size, .seed = 9};
}

std::string refusal(const RecipeRequest& request, const DatasetInfo& data) {
  const Error error = thrown_by([&] { make_recipe(request, data); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  return error.what();
}

TEST(ImageRecipe, HasTheSizeOfTheImagesUnlessAnotherIsGiven) {
  EXPECT_EQ(make_recipe(request_of(Augment::none, "none"), photographs(20, 30)).image, (Shape{3, 20, 30}));
  const ImageRecipe recipe = make_recipe(request_of(Augment::resized_crop, "none", 64), photographs(0, 0));
  EXPECT_EQ(recipe.image, (Shape{3, 64, 64}));
  EXPECT_EQ(recipe.augment, Augment::resized_crop);
  EXPECT_EQ(recipe.seed, 9U);
  EXPECT_TRUE(recipe.statistics.mean.empty());
}

TEST(ImageRecipe, RefusesSizesThatItCannotKnow) {
  EXPECT_NE(refusal(request_of(Augment::none, "none"), photographs(0, 0)).find("differ in size: give --image-size"),
            std::string::npos);
  EXPECT_NE(refusal(request_of(Augment::crop_flip, "none"), photographs(20, 30)).find("are 20 x 30: give --image-size"),
            std::string::npos);
}

TEST(ImageRecipe, NormalizesByOneNumberOrOnePerChannel) {
  const DatasetInfo data = photographs(8, 8);
  EXPECT_EQ(make_recipe(request_of(Augment::none, "0.5/0.25"), data).statistics,
            (ChannelStatistics{{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}}));
  EXPECT_EQ(make_recipe(request_of(Augment::none, "0.1,0.2,0.3/2"), data).statistics,
            (ChannelStatistics{{0.1, 0.2, 0.3}, {2, 2, 2}}));
  DatasetInfo known = data;
  known.statistics = {{0.4, 0.5, 0.6}, {0.1, 0.2, 0.3}};
  EXPECT_EQ(make_recipe(request_of(Augment::none, "auto"), known).statistics, known.statistics);
}

TEST(ImageRecipe, WritesStatisticsThatItReadsToTheLastBit) {
  EXPECT_EQ(normalize_text({}), "none");
  const ChannelStatistics odd{{1.0 / 3, 1e-7, 0}, {2.0 / 7, 1, 123456.789}};
  EXPECT_EQ(make_recipe(request_of(Augment::none, normalize_text(odd)), photographs(8, 8)).statistics, odd);
}

TEST(ImageRecipe, RefusesInvalidStatistics) {
  const DatasetInfo data = photographs(8, 8);
  for (const char* wrong :
       {"", "0.5", "0.5/", "/0.5", "0.5/0.5/0.5", "0.5,0.5/1", "x/1", "0.5/nan", "0.5 /1", "0.5/1,"}) {
    EXPECT_NE(refusal(request_of(Augment::none, wrong), data).find("give none, auto or M/S"), std::string::npos)
        << wrong;
  }
  EXPECT_NE(refusal(request_of(Augment::none, "0.5/0"), data).find("deviation of 0"), std::string::npos);
  EXPECT_NE(refusal(request_of(Augment::none, "0.5/1,-1,1"), data).find("deviation of 0"), std::string::npos);
  EXPECT_NE(refusal(request_of(Augment::none, "auto"), data).find("needs the mean and standard deviation"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti
