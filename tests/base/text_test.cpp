#include "tutti/base/text.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace tutti {
namespace {

TEST(Split, GivesTheWordsWithoutTheSpacesAroundThem) {
  EXPECT_EQ(split(" stem*, layer1 ,,two words,", ','), (std::vector<std::string>{"stem*", "layer1", "", "two words"}));
}

TEST(Numbers, AreParsedWhole) {
  EXPECT_EQ(parse_number<int>("17"), 17);
  EXPECT_EQ(parse_number<double>("-0.5"), -0.5);
  for (const char* wrong : {"", "17 ", "1.5", "99999999999", "x"}) EXPECT_EQ(parse_number<int>(wrong), std::nullopt);
  EXPECT_EQ(parse_numbers<int>("3, 3,2"), (std::vector<int>{3, 3, 2}));
  EXPECT_EQ(parse_numbers<int>(""), std::vector<int>{});
  for (const char* wrong : {",", "3,", "3,,2", "3;2", "3 2"}) EXPECT_EQ(parse_numbers<int>(wrong), std::vector<int>{});
}

TEST(TomlProblem, IsFoundInTextsThatWouldTakeMinutesToRead) {
  EXPECT_FALSE(find_toml_problem(std::string(kMaxTomlBytes, '#')));
  EXPECT_TRUE(find_toml_problem(std::string(kMaxTomlBytes + 1, '#')));
}

TEST(Utf8, IsPrintedWithoutControlCodes) {
  EXPECT_EQ(printable("caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x8E\xBB \xC2\xA0 ~"),
            "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x8E\xBB \xC2\xA0 ~");
  EXPECT_EQ(printable("\x1b[31mred\x07\x7f"), "\\x1b[31mred\\x07\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\x0ab\\x09c\\x0dd");
  EXPECT_EQ(printable("a\nb\tc\rd", "\n\t"), "a\nb\tc\\x0dd");
  EXPECT_EQ(printable("\xC2\x9B 31m"), "\\xc2\\x9b 31m");                 // CSI in one character
  EXPECT_EQ(printable("\xE2\x80\xAEgpj.exe"), "\\xe2\\x80\\xaegpj.exe");  // from right to left
  EXPECT_EQ(printable("\xE2\x81\xA6x\xE2\x80\xA8"), "\\xe2\\x81\\xa6x\\xe2\\x80\\xa8");
  EXPECT_EQ(printable("\xE2\x80\x93 \xE2\x80\xA6"), "\xE2\x80\x93 \xE2\x80\xA6");  // a dash, an ellipsis
  EXPECT_EQ(printable("\xFF\xC3(\xC3"), "\\xff\\xc3(\\xc3");
}

}  // namespace
}  // namespace tutti
