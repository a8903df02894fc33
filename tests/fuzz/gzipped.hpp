#pragma once
// Bytes in gzip's format, stored without compression, which is fast.

#include <zlib.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace tutti::fuzz {

inline const std::vector<std::uint8_t>& gzipped(std::span<const std::uint8_t> content) {
  static thread_local std::vector<std::uint8_t> packed;
  packed = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 3, 1};
  if (content.size() > 0xFFFF) throw std::runtime_error("too long for one stored block");
  const auto put = [&](std::size_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) packed.push_back(static_cast<std::uint8_t>(value >> 8 * i));
  };
  put(content.size(), 2);
  put(~content.size(), 2);
  packed.insert(packed.end(), content.begin(), content.end());
  put(crc32(0, content.data(), static_cast<uInt>(content.size())), 4);
  put(content.size(), 4);
  return packed;
}

}  // namespace tutti::fuzz
