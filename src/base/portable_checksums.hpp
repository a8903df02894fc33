#pragma once
// The checksum loops for any processor, which tests compare with those chosen for this one.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

std::uint32_t portable_crc32c(std::span<const std::byte> bytes);

// Takes whole blocks of 64 bytes into the state of a SHA-256.
using Sha256State = std::array<std::uint32_t, 8>;
void take_blocks(Sha256State& state, std::span<const std::byte> blocks);
void portable_take_blocks(Sha256State& state, std::span<const std::byte> blocks);

}  // namespace tutti
