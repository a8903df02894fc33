#include "tar_reader.hpp"

#include "tutti/base/utf8.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tutti {
namespace {

constexpr std::size_t kBlockBytes = 512;

using Header = std::array<std::uint8_t, kBlockBytes>;

struct Field {
  std::size_t offset;
  std::size_t bytes;
};
constexpr Field kName{0, 100};
constexpr Field kSize{124, 12};
constexpr Field kSum{148, 8};
constexpr std::size_t kType = 156;
constexpr Field kMagic{257, 5};
constexpr Field kPrefix{345, 155};

// Up to the first zero byte.
std::string_view text_of(const Header& header, Field field) {
  const std::string_view text(reinterpret_cast<const char*>(header.data()) + field.offset, field.bytes);
  return text.substr(0, text.find('\0'));
}

// Octal digits between blanks; nothing where it is anything else.
std::optional<std::int64_t> number_of(const Header& header, Field field) {
  std::string_view digits = text_of(header, field);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  if (digits.empty()) return std::nullopt;
  std::int64_t number = 0;  // of 12 digits of 3 bits at most
  for (const char digit : digits) {
    if (digit < '0' || digit > '7') return std::nullopt;
    number = number * 8 + (digit - '0');
  }
  return number;
}

bool has_its_sum(const Header& header) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    sum += i >= kSum.offset && i < kSum.offset + kSum.bytes ? ' ' : header[i];
  }
  return number_of(header, kSum) == sum;
}

std::string path_of(const Header& header) {
  std::string path(text_of(header, kName));
  const bool is_ustar = text_of(header, kMagic) == "ustar";
  const std::string_view prefix = is_ustar && header[kMagic.offset + kMagic.bytes] == 0 ? text_of(header, kPrefix) : "";
  return prefix.empty() ? path : fmt::format("{}/{}", prefix, path);
}

bool leads_out(const std::string& path) {
  const std::filesystem::path parts(path);
  return path.empty() || parts.is_absolute() || std::ranges::find(parts, "..") != parts.end();
}

std::string shown(const std::string& path) { return is_utf8(path) ? path : "of other letters than UTF-8"; }

}  // namespace

TarReader::TarReader(const std::filesystem::path& path) : file_(path) {}

std::size_t TarReader::read_some(std::span<std::uint8_t> bytes) {
  const auto wanted = std::min(bytes.size(), static_cast<std::size_t>(left_));
  file_.read(bytes.first(wanted));
  left_ -= static_cast<std::int64_t>(wanted);
  return wanted;
}

void TarReader::pass_by_the_rest() {
  std::array<std::uint8_t, 16 * kBlockBytes> passed{};
  while (read_some(passed) > 0) continue;
  file_.read(std::span(passed).first(static_cast<std::size_t>(padding_)));
  padding_ = 0;
}

std::optional<TarReader::Member> TarReader::next() {
  while (true) {
    pass_by_the_rest();
    const std::int64_t offset = file_.offset();
    Header header{};
    file_.read(header);
    if (std::ranges::all_of(header, [](std::uint8_t byte) { return byte == 0; })) return std::nullopt;
    if (!has_its_sum(header)) file_.refuse(offset, "the header of a member of a tar archive is expected here");
    Member member{.path = path_of(header)};
    const auto bytes = number_of(header, kSize);
    if (!bytes || *bytes > file_.most_bytes() - file_.offset()) {
      file_.refuse(offset, fmt::format("the member '{}' is longer than the archive can be", shown(member.path)));
    }
    member.bytes = left_ = *bytes;
    padding_ = -*bytes & (static_cast<std::int64_t>(kBlockBytes) - 1);
    const char type = header[kType] == 0 ? '0' : static_cast<char>(header[kType]);
    if (std::string_view("xgLK").find(type) != std::string_view::npos) continue;
    if (leads_out(member.path)) {
      file_.refuse(offset, fmt::format("the member '{}' would lie outside the archive's folder", shown(member.path)));
    }
    if (type == '5') continue;
    if (type != '0') file_.refuse(offset, fmt::format("'{}' is a link or a device, not a file", shown(member.path)));
    return member;
  }
}

}  // namespace tutti
