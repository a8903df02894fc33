#include "tutti/base/utf8.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>

namespace tutti {
namespace {

// How many bytes the character in front has; 0 where there is none.
std::size_t character_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  unsigned code = first & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr std::array<unsigned, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};
  const bool is_one = first >= 0xC0 && first < 0xF8 && code >= kLeast[bytes] && code <= 0x10FFFF;
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  return is_one && !is_surrogate ? bytes : 0;
}

bool is_control(std::string_view character) {
  if (character.size() == 1) return (character[0] >= 0 && character[0] < ' ') || character[0] == '\x7f';
  if (character.size() == 2) return character[0] == '\xc2' && static_cast<unsigned char>(character[1]) < 0xA0;
  // Marks and ends of lines (U+2028 and on), of directions (U+200E, U+202A and on, U+2066 and on).
  const bool is_general = character.starts_with("\xe2\x80") || character.starts_with("\xe2\x81");
  if (character.size() != 3 || !is_general) return false;
  const unsigned low =
      (static_cast<unsigned char>(character[1]) & 1U) << 6 | (static_cast<unsigned char>(character[2]) & 0x3FU);
  return low == 0x0E || low == 0x0F || (low >= 0x28 && low <= 0x2E) || (low >= 0x66 && low <= 0x69);
}

}  // namespace

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    const std::string_view character = text.substr(0, bytes == 0 ? 1 : bytes);
    const bool stays = bytes > 0 && (!is_control(character) || kept.find(character) != kept.npos);
    if (stays) shown += character;
    for (std::size_t i = 0; i < character.size() && !stays; ++i) {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(character[i]));
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t bytes = character_bytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace tutti
