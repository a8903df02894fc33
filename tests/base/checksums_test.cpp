#include "tutti/base/checksums.hpp"

#include "tutti/base/random.hpp"

#include "base/checksum_loops.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> random_bytes(std::size_t size) {
  RandomSequence random(7, {});
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  return bytes;
}

// A span that begins anywhere and is mostly short.
std::span<const std::byte> random_piece(std::span<const std::byte> bytes, RandomSequence& random) {
  const std::size_t longest = std::size_t{1} << random.below(18);
  const auto size = random.below(static_cast<std::uint32_t>(std::min(longest, bytes.size())));
  return bytes.subspan(random.below(static_cast<std::uint32_t>(bytes.size() - size)), size);
}

TEST(Crc32c, GivesThePublishedSums) {  // RFC 3720, B.4
  std::string ascending(32, '\0');
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = static_cast<char>(i);
  const std::string descending(ascending.rbegin(), ascending.rend());
  for (const auto& [text, sum] :
       std::vector<std::pair<std::string, std::uint32_t>>{{"", 0u},
                                                          {"123456789", 0xE3069283u},
                                                          {std::string(32, '\0'), 0x8A9136AAu},
                                                          {std::string(32, '\xff'), 0x62A8AB43u},
                                                          {ascending, 0x46DD794Eu},
                                                          {descending, 0x113FDB5Cu}}) {
    EXPECT_EQ(crc32c(bytes_of(text)), sum);
    EXPECT_EQ(portable_crc32c(bytes_of(text)), sum);
  }
}

TEST(Crc32c, IsTheSameOnAnyProcessor) {
  const std::vector<std::byte> bytes = random_bytes(200'000);
  RandomSequence random(1, {});
  for (int i = 0; i < 500; ++i) {
    const auto piece = random_piece(bytes, random);
    ASSERT_EQ(crc32c(piece), portable_crc32c(piece)) << piece.size() << " bytes";
  }
}

TEST(Sha256, GivesThePublishedSums) {  // FIPS 180-2, appendix B, and the sum of nothing
  EXPECT_EQ(sha256_text({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_text(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_text(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_text(bytes_of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // The length just fits behind the rest, or does not.
  EXPECT_EQ(sha256_text(bytes_of(std::string(55, 'a'))),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(sha256_text(bytes_of(std::string(64, 'a'))),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
}

TEST(Sha256, IsTheSameOnAnyProcessor) {
  const std::vector<std::byte> bytes = random_bytes(64 * 64 + 1);
  RandomSequence random(3, {});
  for (int i = 0; i < 200; ++i) {
    Sha256State chosen{};
    for (std::uint32_t& word : chosen) word = random.next();
    Sha256State portable = chosen;
    const auto blocks = std::span(bytes).subspan(random.below(2), 64 * random.below(64));
    sha256_update(chosen, blocks);
    portable_sha256_update(portable, blocks);
    ASSERT_EQ(chosen, portable) << blocks.size() << " bytes";
  }
}

}  // namespace
}  // namespace tutti
