#pragma once
// CRC-32C (Castagnoli): finds every damage of up to 32 bits in a row. Uses the processor's own instructions where it
// has them.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// Of a piece of longer bytes: `before` is that of all bytes before it.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace tutti
