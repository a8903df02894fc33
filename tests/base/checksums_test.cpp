#include "tutti/base/crc32c.hpp"
#include "tutti/base/random.hpp"
#include "tutti/base/sha256.hpp"

#include "base/portable_checksums.hpp"

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
    EXPECT_EQ(portable_crc32c(bytes_of(text), 0), sum);
  }
}

TEST(Crc32c, IsTheSameOnAnyProcessor) {
  const std::vector<std::byte> bytes = random_bytes(200'000);
  RandomSequence random(1, {});
  for (int i = 0; i < 500; ++i) {
    const auto piece = random_piece(bytes, random);
    const std::uint32_t before = random.next();
    ASSERT_EQ(crc32c(piece, before), portable_crc32c(piece, before)) << piece.size() << " bytes";
  }
}

TEST(Crc32c, GoesOnFromOnePieceToTheNext) {
  const std::vector<std::byte> bytes = random_bytes(100'000);
  RandomSequence random(2, {});
  for (int i = 0; i < 50; ++i) {
    const auto cut = random.below(100'000);
    EXPECT_EQ(crc32c(std::span(bytes).subspan(cut), crc32c(std::span(bytes).first(cut))), crc32c(bytes));
  }
}

TEST(Sha256, GivesThePublishedSums) {  // FIPS 180-2, appendix B, and the sum of nothing
  EXPECT_EQ(sha256_text({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_text(bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_text(bytes_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_text(bytes_of(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, IsTheSameOnAnyProcessor) {
  const std::vector<std::byte> bytes = random_bytes(64 * 64 + 1);
  RandomSequence random(3, {});
  for (int i = 0; i < 200; ++i) {
    Sha256State chosen{};
    for (std::uint32_t& word : chosen) word = random.next();
    Sha256State portable = chosen;
    const auto blocks = std::span(bytes).subspan(random.below(2), 64 * random.below(64));
    take_blocks(chosen, blocks);
    portable_take_blocks(portable, blocks);
    ASSERT_EQ(chosen, portable) << blocks.size() << " bytes";
  }
}

TEST(Sha256, DoesNotDependOnThePieces) {
  const std::vector<std::byte> bytes = random_bytes(5000);
  Sha256 whole;
  whole.update(bytes);
  const auto expected = whole.finish();
  RandomSequence random(4, {});
  for (int i = 0; i < 200; ++i) {
    Sha256 sum;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto piece = std::min<std::size_t>(random.below(200), bytes.size() - at);
      sum.update(std::span(bytes).subspan(at, piece));
      at += piece;
    }
    ASSERT_EQ(sum.finish(), expected);
  }
}

}  // namespace
}  // namespace tutti
