// Tar archives, raw or as whatever zlib finds in them. Behind an 's' every header of ustar's has the sum that it needs.

#include "fuzz/parsed_input.hpp"
#include "tar_reader.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

using namespace tutti;

namespace {

constexpr std::size_t kBlockBytes = 512;

std::vector<std::uint8_t> with_sums(fuzz::Input input) {
  std::vector<std::uint8_t> bytes(input.begin(), input.end());
  for (std::size_t at = 0; at + kBlockBytes <= bytes.size(); at += kBlockBytes) {
    const std::span<std::uint8_t> header(bytes.data() + at, kBlockBytes);
    constexpr std::string_view kMagic = "ustar";
    if (!std::equal(kMagic.begin(), kMagic.end(), header.begin() + 257)) continue;
    std::fill_n(header.begin() + 148, 8, ' ');
    unsigned sum = 0;
    for (const std::uint8_t byte : header) sum += byte;
    for (std::size_t digit = 0; digit < 6; ++digit) {
      header[148 + digit] = static_cast<std::uint8_t>('0' + (sum >> 3 * (5 - digit) & 7));
    }
    header[154] = 0;
  }
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  fuzz::Input input(data, size);
  const bool sums = fuzz::take_byte(input) == 's';
  file.hold(sums ? with_sums(input) : std::vector<std::uint8_t>(input.begin(), input.end()));
  fuzz::takes({ErrorSource::input, ErrorSource::io}, [&] {
    TarReader tar(file.path());
    std::array<std::uint8_t, 700> piece{};
    for (bool reads = true; const auto member = tar.next(); reads = !reads) {
      const std::filesystem::path path(member->path);
      if (path.is_absolute() || std::ranges::find(path, "..") != path.end()) fuzz::report("a path leads out");
      if (!reads) continue;  // then next() passes it by
      std::int64_t bytes = 0;
      while (const std::size_t got = tar.read_some(piece)) bytes += static_cast<std::int64_t>(got);
      if (bytes != member->bytes) fuzz::report("a member is shorter or longer than it says");
    }
  });
  return 0;
}
