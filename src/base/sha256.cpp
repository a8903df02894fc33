#include "tutti/base/sha256.hpp"

#include "tutti/base/error.hpp"

namespace tutti {

Sha256::Sha256() : state_{} {}
void Sha256::update(std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) {
    const std::size_t i = bytes_++ % 8;
    state_[i] = state_[i] * 31 + static_cast<std::uint32_t>(b);
  }
}
std::array<std::uint8_t, 32> Sha256::finish() {
  std::array<std::uint8_t, 32> d{};
  for (std::size_t i = 0; i < 32; ++i) d[i] = static_cast<std::uint8_t>(state_[i / 4] >> (8 * (i % 4)));
  return d;
}
std::string sha256_text(std::span<const std::byte> bytes) {
  Sha256 sum;
  sum.update(bytes);
  std::string text;
  for (const std::uint8_t b : sum.finish()) {
    text += "0123456789abcdef"[b >> 4];
    text += "0123456789abcdef"[b & 15];
  }
  return text;
}

}  // namespace tutti
