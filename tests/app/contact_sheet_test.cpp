#include "show/contact_sheet.hpp"

#include "show/canvas.hpp"
#include "show/letters.hpp"
#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr Colour kWhite{255, 255, 255};
constexpr Colour kBlack{0, 0, 0};

// The canvas as text: '#' where it is black.
std::vector<std::string> drawn(const Canvas& canvas) {
  const ImageView image = canvas.image();
  std::vector<std::string> rows(static_cast<std::size_t>(image.shape[1]));
  for (std::size_t i = 0; i < static_cast<std::size_t>(image.shape[1] * image.shape[2]); ++i) {
    rows[i / static_cast<std::size_t>(image.shape[2])] += image.pixels[i] == 0 ? '#' : '.';
  }
  return rows;
}

std::vector<std::string> written(std::string_view text, std::int64_t width) {
  Canvas canvas(width, kLetterHeight, kWhite);
  canvas.write(text, {0, 0, width, kLetterHeight}, {.points = 1, .colour = kBlack});
  return drawn(canvas);
}

TEST(Letters, AreAllDifferentAndStandForOneCharacterEach) {
  std::string all;
  for (char c = '!'; c <= '~'; ++c) all += c;
  const std::vector<Letter> letters = letters_of(all);
  ASSERT_EQ(letters.size(), 94u);
  EXPECT_EQ(std::set<Letter>(letters.begin(), letters.end()).size(), letters.size());
  for (const Letter& letter : letters) {
    EXPECT_TRUE(std::ranges::all_of(letter, [](std::uint8_t row) { return row < 32; }));
  }
  EXPECT_EQ(letters_of("K\u00e4se \u4e2d").size(), 6u);
}

TEST(Canvas, WritesInTheMiddle) {
  EXPECT_EQ(written("L1", 13),
            (std::vector<std::string>{".#.......#...", ".#......##...", ".#.......#...", ".#.......#...",
                                      ".#.......#...", ".#.......#...", ".#####..###.."}));
}

TEST(Canvas, EndsATextThatIsTooLongInDots) {
  EXPECT_EQ(written("aeroplane", 23), written("ae..", 23));
  EXPECT_EQ(written("aeroplane", 52), written("aeropl..", 52));
  EXPECT_NE(written("aeroplane", 53), written("aeropla..", 53));
  EXPECT_EQ(written("ae", 5), written(".", 5));
  EXPECT_EQ(written("ae", 4), written("", 4));
}

TEST(Canvas, EnlargesByRepeatingAndShrinksByMeans) {
  const std::vector<std::uint8_t> pixels{0, 255, 255, 0};
  Canvas large(4, 4, kWhite);
  large.draw({pixels.data(), Shape{1, 2, 2}}, {0, 0, 4, 4});
  EXPECT_EQ(drawn(large), (std::vector<std::string>{"##..", "##..", "..##", "..##"}));
  Canvas small(1, 1, kWhite);
  small.draw({pixels.data(), Shape{1, 2, 2}}, {0, 0, 1, 1});
  EXPECT_EQ(small.image().pixels[0], 128);
}

TEST(Canvas, KeepsTheColoursApartAndCutsOffWhatDoesNotFit) {
  const std::vector<std::uint8_t> red_and_blue{200, 0, 0, 0, 0, 100};  // 3 x 1 x 2
  Canvas canvas(3, 1, kWhite);
  canvas.draw({red_and_blue.data(), Shape{3, 1, 2}}, {2, 0, 2, 1});
  const std::uint8_t* const pixels = canvas.image().pixels;
  EXPECT_EQ((std::vector<int>{pixels[1], pixels[2], pixels[5], pixels[8]}), (std::vector<int>{255, 200, 0, 0}));
}

SheetEntry entry_of(const std::vector<std::uint8_t>& pixels, std::int64_t side) {
  return {.image = {pixels.data(), Shape{1, side, side}}, .name = "name", .note = "note"};
}

// Width and height as a PNG file's header tells them.
std::pair<int, int> size_of(const std::vector<std::byte>& png) {
  const auto word = [&](std::size_t at) { return static_cast<int>(png[at + 2]) * 256 + static_cast<int>(png[at + 3]); };
  return {word(16), word(20)};
}

TEST(ContactSheet, EnlargesSmallImagesAndFillsRowsEvenly) {
  const std::vector<std::uint8_t> pixels(28 * 28);
  const std::vector<SheetEntry> ten(12, entry_of(pixels, 28));
  const ContactSheet sheet(ten);
  EXPECT_EQ(sheet.enlargement(), 4);
  const auto [width, height] = size_of(sheet.png());
  EXPECT_EQ(width, 10 + 6 * (112 + 10)) << "two rows of six, not of ten and two";
  EXPECT_EQ(height, 10 + 2 * (112 + 20 + 13 + 10));
}

TEST(ContactSheet, ShowsOriginalsOfOtherProportionsBesideInABoxOfTheSameSize) {
  const std::vector<std::uint8_t> pixels(200 * 200, 77);
  const std::vector<std::uint8_t> wide(400 * 100);
  SheetEntry entry = entry_of(pixels, 200);
  entry.original = ImageView{wide.data(), Shape{1, 100, 400}};
  const std::vector<SheetEntry> one{entry};
  const ContactSheet sheet(one);
  EXPECT_EQ(sheet.enlargement(), 1);
  EXPECT_EQ(size_of(sheet.png()).first, 10 + 200 + 4 + 200 + 10);
}

TEST(ContactSheet, RefusesWhatMakesTooLargeAPicture) {
  const std::vector<std::uint8_t> pixels(1000 * 1000);
  const std::vector<SheetEntry> many(100, entry_of(pixels, 1000));
  const Error error = thrown_by([&] { ContactSheet sheet(many); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_THAT(error.what(), HasSubstr("--count 100: so many images of 1000 x 1000"));
}

}  // namespace
}  // namespace tutti
