#pragma once
// Reads a digest back from the sixteen hexadecimal digits that digest_text writes.

#include "tutti/base/digest.hpp"

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

// Nothing unless the word is exactly what digest_text would write.
inline std::optional<std::uint64_t> parse_digest(std::string_view word) {
  std::uint64_t digest = 0;
  std::from_chars(word.data(), word.data() + word.size(), digest, 16);
  if (digest_text(digest) != word) return std::nullopt;
  return digest;
}

}  // namespace tutti
