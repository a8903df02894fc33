#include "tutti/base/checksums.hpp"

#include "checksum_loops.hpp"

#include <sys/auxv.h>

namespace tutti {
namespace {

[[gnu::target("+crc")]] std::uint32_t crc32c_armv8(std::span<const std::byte> bytes) {
  struct Word {
    [[gnu::target("+crc")]] std::uint64_t operator()(std::uint64_t crc, std::uint64_t word) const {
      return __builtin_aarch64_crc32cx(static_cast<std::uint32_t>(crc), word);
    }
  };
  struct Byte {
    [[gnu::target("+crc")]] std::uint32_t operator()(std::uint32_t crc, std::uint8_t byte) const {
      return __builtin_aarch64_crc32cb(crc, byte);
    }
  };
  return crc32c_in_runs(bytes, Word(), Byte());
}

}  // namespace

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  static const auto loop = (::getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? crc32c_armv8 : portable_crc32c;
  return loop(bytes);
}

void sha256_update(Sha256State& state, std::span<const std::byte> blocks) { portable_sha256_update(state, blocks); }

}  // namespace tutti
