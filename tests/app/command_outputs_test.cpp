// The output of commands: predictions, the confusion matrix, mistakes, and contact sheets.

#include "tutti/train/evaluation.hpp"

#include "eval_command.hpp"
#include "pictures.hpp"
#include "scoring.hpp"
#include "support/reports.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using ::testing::ElementsAre;

std::vector<std::size_t> numbers(const std::vector<RankedClass>& classes) {
  std::vector<std::size_t> all;
  for (const RankedClass& one : classes) all.push_back(one.number);
  return all;
}

TEST(BestClasses, AreThoseOfTheGreatestOutputsAndTheFirstOfEquals) {
  const std::vector<SampleResult> samples{{.exponentials = 3, .predicted = 1}, {.exponentials = 3, .predicted = 1}};
  const std::vector<float> logits{0, 0, 0, 0, 1, 5, 5, 3};
  const ChunkScores scores{.classes = 4, .samples = samples, .logits = logits};
  EXPECT_THAT(numbers(best_classes(scores, 0, 2)), ElementsAre(0, 1));
  EXPECT_THAT(numbers(best_classes(scores, 1, 3)), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers(best_classes(scores, 1, 9)), ElementsAre(1, 2, 3, 0));
}

// The probabilities of these outputs are the same double.
TEST(BestClasses, DistinguishOutputsWithEqualProbabilities) {
  const std::vector<SampleResult> samples{{.exponentials = 1, .predicted = 0}};
  const std::vector<float> logits{1000, -2000, -1000};
  const ChunkScores scores{.classes = 3, .samples = samples, .logits = logits};
  const auto best = best_classes(scores, 0, 3);
  EXPECT_THAT(numbers(best), ElementsAre(0, 2, 1));
  EXPECT_EQ(best[1].probability, best[2].probability);
}

TEST(Confusion, CountsWhichClassIsMistakenForWhich) {
  Confusion confusion({"cat", "dog", "ox"});
  std::vector<SampleResult> samples;
  for (int i = 0; i < 10; ++i) samples.push_back({.label = i < 8 ? 0 : 1, .predicted = i < 5 ? 0 : i < 6 ? 1 : 2});
  const std::vector<float> logits(30);
  confusion.add({.classes = 3, .samples = samples, .logits = logits});
  EXPECT_EQ(confusion.text(),
            "class  images     acc  mistaken for\n"
            "cat         8  0.6250  ox 2, dog 1\n"
            "dog         2  0.0000  ox 2\n"
            "ox          0       -  \n"
            "\n"
            "true, predicted  0  1  2\n"
            " 0  cat          5  1  2\n"
            " 1  dog          0  0  2\n"
            " 2  ox           0  0  0\n");
}

TEST(Confusion, OmitsTheMatrixWhereItDoesNotFitATerminal) {
  std::vector<std::string> names;
  for (int i = 0; i < 21; ++i) names.push_back(std::to_string(i));
  EXPECT_EQ(Confusion(names).text().find("true, predicted"), std::string::npos);
  names.pop_back();
  EXPECT_THAT(Confusion(names).text(), mentions("true, predicted"));
}

TEST(Mistakes, KeepTheMostConfidentOfMany) {
  std::vector<Mistake> sorted;
  std::vector<float> logits;
  std::vector<SampleResult> samples;
  for (int i = 0; i < 50; ++i) {
    const double probability = 0.5 + 0.01 * ((i * 37) % 50);
    logits.insert(logits.end(), {0, static_cast<float>(std::log(1 / probability - 1))});
    samples.push_back({.exponentials = 1 / probability, .label = i % 5 == 0 ? 0 : 1, .predicted = 0});
  }
  add_mistakes(sorted, {.first = 100, .classes = 2, .samples = samples, .logits = logits}, 3);
  ASSERT_EQ(sorted.size(), 3u);
  EXPECT_EQ(sorted[0].sample, 127);
  EXPECT_NEAR(sorted[0].probability, 0.99, 1e-6);
  EXPECT_NEAR(sorted[0].probability_of_label, 0.01, 1e-6);
  EXPECT_NEAR(sorted[1].probability, 0.98, 1e-6);
  EXPECT_NEAR(sorted[2].probability, 0.97, 1e-6);
}

TEST(SmallPng, LimitsBothSides) {
  std::vector<std::uint8_t> pixels(3 * 300 * 100, 100);
  const auto big_endian = [](const std::vector<std::byte>& png, std::size_t at) {
    return std::to_integer<int>(png[at + 2]) * 256 + std::to_integer<int>(png[at + 3]);
  };
  const auto large = small_png({pixels.data(), {3, 300, 100}}, 160);
  EXPECT_EQ(big_endian(large, 16), 50);
  EXPECT_EQ(big_endian(large, 20), 150);
  EXPECT_EQ(std::to_integer<int>(large[25]), 2) << "RGB";
  const auto odd = small_png({pixels.data(), {2, 7, 161}}, 160);
  EXPECT_EQ(big_endian(odd, 16), 81);
  EXPECT_EQ(big_endian(odd, 20), 4);
  EXPECT_EQ(std::to_integer<int>(odd[25]), 0) << "gray";
}

SheetEntry entry_of(const std::vector<std::uint8_t>& pixels, std::int64_t side) {
  return {.image = {pixels.data(), Shape{1, side, side}}};
}

// Width and height from the header of a PNG file.
std::pair<int, int> size_of(const ContactSheet& sheet) {
  const auto word = [&](std::size_t at) {
    return static_cast<int>(sheet.png[at + 2]) * 256 + static_cast<int>(sheet.png[at + 3]);
  };
  return {word(16), word(20)};
}

TEST(ContactSheet, EnlargesSmallImagesAndFillsRowsEvenly) {
  const std::vector<std::uint8_t> pixels(28 * 28);
  const ContactSheet sheet = make_contact_sheet(std::vector<SheetEntry>(12, entry_of(pixels, 28)));
  EXPECT_EQ(sheet.enlargement, 4);
  EXPECT_EQ(sheet.columns, 6) << "two rows of six, not of ten and two";
  EXPECT_EQ(size_of(sheet), std::pair(10 + 6 * (112 + 10), 10 + 2 * (112 + 10)));
}

TEST(ContactSheet, ShowsOriginalsOfOtherProportionsInABoxOfTheSameSize) {
  const std::vector<std::uint8_t> pixels(200 * 200, 77);
  const std::vector<std::uint8_t> wide(400 * 100);
  SheetEntry entry = entry_of(pixels, 200);
  entry.original = ImageView{wide.data(), Shape{1, 100, 400}};
  const ContactSheet sheet = make_contact_sheet({entry});
  EXPECT_EQ(sheet.enlargement, 1);
  EXPECT_EQ(size_of(sheet).first, 10 + 200 + 4 + 200 + 10);
}

TEST(ContactSheet, RefusesWhatMakesTooLargeAPicture) {
  const std::vector<std::uint8_t> pixels(1000 * 1000);
  EXPECT_THAT(thrown_by([&] { make_contact_sheet(std::vector<SheetEntry>(100, entry_of(pixels, 1000))); }),
              reports(ErrorSource::usage, "--count 100: 100 images of 1000 x 1000"));
}

}  // namespace
}  // namespace tutti
