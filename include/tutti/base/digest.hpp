#pragma once
// 64-bit digests of named arrays. A digest is a sum over elements, so it can be computed in shards, on any device
// and in any layout:
//   digest(tensor) = sum over i of mix64(bits(x_i) + (i + 1) * 0x9E3779B97F4A7C15 + hash64(name))   modulo 2^64
// with i counting in canonical order and bits() zero-extended. The digest of a set is the sum of its tensors'.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The finalizer of SplitMix64.
constexpr std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// FNV-1a over the bytes, then mix64.
constexpr std::uint64_t hash64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return mix64(hash);
}

inline constexpr std::uint64_t kDigestStride = 0x9E3779B97F4A7C15u;
// The constant added to each element's bits: the hash of the name, advanced by `first` elements for a piece of a
// tensor.
constexpr std::uint64_t digest_start(std::string_view name, std::uint64_t first = 0) {
  return hash64(name) + first * kDigestStride;
}

std::uint64_t digest(std::string_view name, std::span<const float> values);
std::uint64_t digest(std::string_view name, std::span<const double> values);
// With `first`, it is that of a piece that begins at this element; the digest of a tensor is the sum over its pieces.
std::uint64_t digest(std::string_view name, std::span<const std::uint8_t> values, std::uint64_t first = 0);
std::uint64_t digest(std::string_view name, std::span<const std::int32_t> values);
std::uint64_t digest(std::string_view name, std::span<const std::int64_t> values);

// Sixteen hexadecimal digits, as printed everywhere.
std::string digest_text(std::uint64_t digest);
// Returns nothing unless the text is exactly what digest_text() writes.
std::optional<std::uint64_t> parse_digest(std::string_view text);

}  // namespace tutti
