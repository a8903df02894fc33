#include "tutti/base/checksums.hpp"

#include "checksum_loops.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tutti {
namespace {

constexpr auto kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) table[byte] = times_x(table[byte]);
  }
  return table;
}();

constexpr std::size_t kLengthBytes = 8;
constexpr Sha256State kStart{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                             0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
std::uint32_t big_endian(const std::byte* at) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word = word << 8 | static_cast<std::uint32_t>(at[i]);
  return word;
}

}  // namespace

std::uint32_t portable_crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = 0xFFFFFFFFu;
  for (const std::byte byte : bytes) crc = (crc >> 8) ^ kTable[(crc ^ static_cast<std::uint32_t>(byte)) & 0xFFu];
  return ~crc;
}

void portable_sha256_update(Sha256State& state, std::span<const std::byte> blocks) {
  for (; !blocks.empty(); blocks = blocks.subspan(kBlock)) {
    std::array<std::uint32_t, 64> w{};
    for (std::size_t t = 0; t < 16; ++t) w[t] = big_endian(blocks.data() + 4 * t);
    for (std::size_t t = 16; t < 64; ++t) {
      const std::uint32_t near = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
      const std::uint32_t far = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
      w[t] = near + w[t - 7] + far + w[t - 16];
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (std::size_t t = 0; t < 64; ++t) {
      const std::uint32_t first =
          h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRounds[t] + w[t];
      const std::uint32_t second =
          (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + first;
      d = c, c = b, b = a, a = first + second;
    }
    const Sha256State after{a, b, c, d, e, f, g, h};
    for (std::size_t i = 0; i < state.size(); ++i) state[i] += after[i];
  }
}

std::string sha256_text(std::span<const std::byte> bytes) {
  Sha256State state = kStart;
  const auto rest = bytes.last(bytes.size() % kBlock);
  sha256_update(state, bytes.first(bytes.size() - rest.size()));
  std::array<std::byte, 2 * kBlock> end{};
  std::ranges::copy(rest, end.begin());
  end[rest.size()] = std::byte{0x80};
  const std::size_t size = rest.size() < kBlock - kLengthBytes ? kBlock : 2 * kBlock;
  const std::uint64_t bits = 8 * std::uint64_t{bytes.size()};
  for (std::size_t i = 0; i < kLengthBytes; ++i) end[size - 1 - i] = static_cast<std::byte>(bits >> (8 * i));
  sha256_update(state, std::span(end).first(size));
  std::string text;
  for (const std::uint32_t word : state) text += fmt::format("{:08x}", word);
  return text;
}

}  // namespace tutti
