#pragma once
// Adds the matching seal to the words of a manifest (docs/formats.md).

#include "tutti/base/digest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace tutti::fuzz {

inline std::string sealed(std::string words) {
  words.resize(std::min(words.rfind("  \"seal\": "), words.size()));
  const std::span<const std::uint8_t> bytes(reinterpret_cast<const std::uint8_t*>(words.data()), words.size());
  return words + fmt::format("  \"seal\": \"{}\"\n}}\n", digest_text(digest("manifest", bytes)));
}

}  // namespace tutti::fuzz
