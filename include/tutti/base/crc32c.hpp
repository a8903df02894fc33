#pragma once
// CRC-32C (Castagnoli): finds every damage of up to 32 bits in a row. Uses the processor's own instructions where it
// has them.

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

std::uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace tutti
