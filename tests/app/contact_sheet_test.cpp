#include "show/contact_sheet.hpp"

#include "support/thrown.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace tutti {
namespace {

using ::testing::HasSubstr;

SheetEntry entry_of(const std::vector<std::uint8_t>& pixels, std::int64_t side) {
  return {.image = {pixels.data(), Shape{1, side, side}}};
}

// Width and height, as a PNG file's header has them.
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

TEST(ContactSheet, ShowsOriginalsOfOtherProportionsBesideInABoxOfTheSameSize) {
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
  const Error error = thrown_by([&] { make_contact_sheet(std::vector<SheetEntry>(100, entry_of(pixels, 1000))); });
  EXPECT_EQ(error.source(), ErrorSource::usage);
  EXPECT_THAT(error.what(), HasSubstr("--count 100: 100 images of 1000 x 1000"));
}

}  // namespace
}  // namespace tutti
