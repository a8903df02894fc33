#pragma once
// SHA-256 (FIPS 180-4), for telling whether a file is the one that was written. Uses the processor's own instructions
// where it has them.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  // Nothing can be added afterwards.
  std::array<std::uint8_t, 32> finish();

 private:
  static constexpr std::size_t kBlockBytes = 64;

  std::array<std::uint32_t, 8> state_;
  std::array<std::byte, kBlockBytes> waiting_{};
  std::uint64_t bytes_ = 0;
};

// Sixty-four hexadecimal digits.
std::string sha256_text(std::span<const std::byte> bytes);

}  // namespace tutti
