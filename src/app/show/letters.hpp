#pragma once
// Letters of five by seven points, for names on a picture. Other characters than ASCII's show as a frame.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace tutti {

inline constexpr int kLetterWidth = 5;
inline constexpr int kLetterHeight = 7;
using Letter = std::array<std::uint8_t, kLetterHeight>;  // a row each: its left point is the bit of 16

// One for each character of UTF-8.
std::vector<Letter> letters_of(std::string_view text);

}  // namespace tutti
