#pragma once
// SHA-256 (FIPS 180-4), for telling whether a file is the one that was written. Uses the processor's own instructions
// where it has them.

#include <cstddef>
#include <span>
#include <string>

namespace tutti {

// Sixty-four hexadecimal digits.
std::string sha256_text(std::span<const std::byte> bytes);

}  // namespace tutti
