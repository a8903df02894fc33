#include "tutti/base/error.hpp"
#include "tutti/data/trained_on.hpp"

#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Images of 1 x 2 pixels: two, or one per label.
class AdaptedDatasetTest : public ::testing::Test {
 protected:
  std::unique_ptr<Dataset> set(std::int64_t channels, std::vector<std::string> names, int classes = 2) {
    info_.name = "set";
    info_.image = Shape{channels, 1, 2};
    info_.classes = names.empty() ? classes : static_cast<int>(names.size());
    info_.class_names = std::move(names);
    info_.samples = std::ssize(labels_);
    pixels_.clear();
    for (std::int64_t i = 0; i < info_.samples * info_.image.elements(); ++i) {
      pixels_.push_back(static_cast<std::uint8_t>(20 * i));
    }
    return std::make_unique<MemoryDataset>(info_, pixels_, labels_);
  }
  std::unique_ptr<Dataset> fit(const TrainedOn& network, std::unique_ptr<Dataset> data) {
    notes_.clear();
    return adapt_to(network, std::move(data), notes_);
  }
  static SampleBatch read(const Dataset& data, std::vector<std::int64_t> samples) {
    SampleBatch batch;
    data.read(std::vector<std::int64_t>{1, 0, 1}, batch);  // the rest of an earlier read must not matter
    data.read(samples, batch);
    return batch;
  }
  static std::vector<int> pixels(const ImageView& image) {
    return {image.pixels, image.pixels + image.shape.elements()};
  }

  DatasetInfo info_;
  std::vector<std::int32_t> labels_{0, 1};
  std::vector<std::uint8_t> pixels_;
  std::vector<std::string> notes_;
};

TEST_F(AdaptedDatasetTest, IsTheDataSetItselfWhereNothingDiffers) {
  for (const std::vector<std::string>& names : {std::vector<std::string>{}, {"cat", "dog"}}) {
    auto data = set(1, names);
    const Dataset* const before = data.get();
    const auto fitted = fit({.image = {1, 5, 5}, .classes = 2, .class_names = names}, std::move(data));
    EXPECT_EQ(fitted.get(), before);
    EXPECT_THAT(notes_, IsEmpty());
  }
}

TEST_F(AdaptedDatasetTest, MakesColorGrayByItsBrightness) {
  const auto fitted = fit({.image = {1, 1, 2}, .classes = 2, .class_names = {}}, set(3, {}));
  EXPECT_EQ(fitted->info().image, (Shape{1, 1, 2}));
  const SampleBatch batch = read(*fitted, {0, 1});
  // Of planes 0 20, 40 60, 80 100: 0.587 * 40 + 0.114 * 80 = 32.6 and 52.6; the second image is 120 brighter.
  EXPECT_THAT(pixels(batch.images[0]), ElementsAre(33, 53));
  EXPECT_THAT(pixels(batch.images[1]), ElementsAre(153, 173));
  EXPECT_THAT(batch.labels, ElementsAre(0, 1));
  EXPECT_THAT(notes_, ElementsAre("set: in color, converted to gray for the network"));
}

TEST_F(AdaptedDatasetTest, MakesGrayAColorOfThreeEqualChannels) {
  const auto fitted = fit({.image = {3, 1, 2}, .classes = 2, .class_names = {}}, set(1, {}));
  const SampleBatch batch = read(*fitted, {1});
  EXPECT_EQ(batch.images[0].shape, (Shape{3, 1, 2}));
  EXPECT_THAT(pixels(batch.images[0]), ElementsAre(40, 60, 40, 60, 40, 60));
  EXPECT_THAT(notes_, ElementsAre("set: gray, converted to color for the network"));
}

TEST_F(AdaptedDatasetTest, RefusesOtherChannels) {
  const Error error = thrown_by([&] { fit({.image = {3, 1, 2}, .classes = 2, .class_names = {}}, set(4, {})); });
  EXPECT_THAT(error, reports(ErrorSource::input, "images of set ", "4 channels", "the network takes 3"));
}

TEST_F(AdaptedDatasetTest, FindsLabelsByTheNamesOfTheirClasses) {
  const auto fitted =
      fit({.image = {1, 1, 2}, .classes = 3, .class_names = {"ant", "cat", "dog"}}, set(1, {"dog", "ant"}));
  EXPECT_THAT(read(*fitted, {0, 1}).labels, ElementsAre(2, 0));
  EXPECT_EQ(fitted->info().classes, 3);
  EXPECT_THAT(fitted->info().class_names, ElementsAre("ant", "cat", "dog"));
  EXPECT_TRUE(fitted->info().labelled);
  EXPECT_THAT(notes_, IsEmpty());
}

TEST_F(AdaptedDatasetTest, TakesLabelsByNumberWhereOneSideNamesNone) {
  const auto unnamed = fit({.image = {1, 1, 2}, .classes = 3, .class_names = {"ant", "cat", "dog"}}, set(1, {}));
  EXPECT_THAT(read(*unnamed, {0, 1}).labels, ElementsAre(0, 1));
  const auto named = fit({.image = {1, 1, 2}, .classes = 2, .class_names = {}}, set(1, {"dog", "ant"}));
  EXPECT_THAT(read(*named, {0, 1}).labels, ElementsAre(0, 1));
  EXPECT_THAT(named->info().class_names, ElementsAre("dog", "ant"));
}

TEST_F(AdaptedDatasetTest, IgnoresLabelsThatTheNetworkDoesNotHave) {
  const TrainedOn pets{.image = {1, 1, 2}, .classes = 2, .class_names = {"cat", "dog"}};
  const auto strange = fit(pets, set(1, {"cat", "fox"}));
  EXPECT_FALSE(strange->info().labelled);
  EXPECT_THAT(read(*strange, {0, 1}).labels, ElementsAre(0, 0));
  EXPECT_THAT(notes_, ElementsAre("labels are ignored: set has the class 'fox', which the network does not have"));
  const auto many = fit(pets, set(1, {}, 7));
  EXPECT_FALSE(many->info().labelled);
  EXPECT_THAT(notes_, ElementsAre("labels are ignored: set has 7 classes, and the network has 2"));
}

}  // namespace
}  // namespace tutti
