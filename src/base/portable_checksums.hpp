#pragma once
// The portable checksum loops, with which tests compare the loops that were chosen for this processor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

std::uint32_t portable_crc32c(std::span<const std::byte> bytes);

// Updates the state of a SHA-256 with whole blocks of 64 bytes.
using Sha256State = std::array<std::uint32_t, 8>;
void sha256_update(Sha256State& state, std::span<const std::byte> blocks);
void portable_sha256_update(Sha256State& state, std::span<const std::byte> blocks);

}  // namespace tutti
