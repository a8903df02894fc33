#pragma once
// Checksums of bytes in files, with the processor's own instructions if it has them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

// CRC-32C (Castagnoli): finds every damage of up to 32 bits in a row.
std::uint32_t crc32c(std::span<const std::byte> bytes);

// SHA-256 (FIPS 180-4) as sixty-four hexadecimal digits.
std::string sha256_text(std::span<const std::byte> bytes);

}  // namespace tutti
