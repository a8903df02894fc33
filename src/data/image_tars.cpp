#include "image_tars.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/text.hpp"

#include "sources.hpp"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <string_view>
#include <utility>

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBlockBytes = 512;
constexpr std::int64_t kMaxHeaderBytes = std::int64_t{1} << 16;  // of a long name or pax header
constexpr std::int64_t kMaxClassBytes = 4096;
constexpr std::int64_t kMaxArchives = 1'000'000;

using Block = std::array<char, kBlockBytes>;

std::string_view field(const Block& block, std::size_t at, std::size_t length) {
  const std::string_view whole(block.data() + at, length);
  return whole.substr(0, whole.find('\0'));
}

// Octal digits, or a big-endian number after a byte of 0x80. Nothing if it is neither or too large.
std::optional<std::int64_t> number_in(const Block& block, std::size_t at, std::size_t length) {
  if (static_cast<unsigned char>(block[at]) == 0x80) {
    std::uint64_t value = 0;
    for (std::size_t i = 1; i < length; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(block[at + i]);
    }
    return static_cast<std::int64_t>(value);
  }
  std::int64_t value = 0;
  for (const char digit : trimmed(field(block, at, length))) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value * 8 + (digit - '0');
  }
  return value;
}

bool has_right_checksum(const Block& block) {
  constexpr std::size_t kAt = 148;
  constexpr std::size_t kLength = 8;
  std::int64_t sum = kLength * ' ';
  for (std::size_t i = 0; i < block.size(); ++i) {
    if (i < kAt || i >= kAt + kLength) sum += static_cast<unsigned char>(block[i]);
  }
  return number_in(block, kAt, kLength) == sum;
}

std::string name_in(const Block& block) {
  std::string name(field(block, 0, 100));
  const bool has_prefix = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6);
  const std::string_view prefix = has_prefix ? field(block, 345, 155) : std::string_view();
  return prefix.empty() ? name : fmt::format("{}/{}", prefix, name);
}

bool is_tar(const fs::path& path) { return in_lower_case(path.extension().string()) == ".tar"; }

// The texts that a pattern with {000..146} or {a,b} stands for.
std::vector<std::string> expanded(const std::string& pattern) {
  const std::size_t open = pattern.find('{');
  const std::size_t close = pattern.find('}', open);
  if (open == std::string::npos || close == std::string::npos) return {pattern};
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  std::vector<std::string> words = split(inside, ',');
  if (const std::size_t dots = inside.find(".."); dots != std::string::npos) {
    const auto first = parse_number<std::int64_t>(inside.substr(0, dots));
    const auto last = parse_number<std::int64_t>(inside.substr(dots + 2));
    if (!first || !last || *first < 0 || *last < *first || *last - *first >= kMaxArchives) {
      throw Error(ErrorSource::usage, fmt::format("'{}': {{{}}} is not a range such as {{000..146}}", pattern, inside));
    }
    words.clear();
    for (std::int64_t i = *first; i <= *last; ++i) words.push_back(fmt::format("{:0{}}", i, dots));
  }
  std::vector<std::string> all;
  for (const std::string& word : words) {
    std::ranges::move(expanded(pattern.substr(0, open) + word + pattern.substr(close + 1)), std::back_inserter(all));
  }
  return all;
}

std::vector<std::string> matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (paths.empty()) throw Error(ErrorSource::io, fmt::format("no archive matches '{}'", pattern));
  return paths;
}

// Empty if the name is that of no archive.
std::vector<std::string> archives_of(const std::string& where) {
  std::vector<std::string> paths;
  if (fs::is_directory(where)) {
    const FolderListing listing = list_folder(where);
    if (!listing.folders.empty() || !listing.images.empty()) return {};
    for (const std::string& name : listing.others) {
      if (is_tar(name)) paths.push_back((fs::path(where) / name).string());
    }
  } else if (is_tar(where) && fs::exists(where)) {
    paths.push_back(where);
  } else if (is_tar(where)) {
    for (const std::string& pattern : expanded(where)) {
      const bool is_plain = pattern.find_first_of("*?[") == std::string::npos;
      std::ranges::move(is_plain ? std::vector{pattern} : matching(pattern), std::back_inserter(paths));
    }
  }
  return paths;
}

// That of the folder, or the letters before the pattern or ending.
std::string name_of_tars(const std::string& where) {
  const fs::path path = (fs::is_directory(where) ? fs::absolute(where) / "" : fs::path(where)).lexically_normal();
  if (!path.has_filename()) return path.parent_path().filename().string();
  std::string name = path.stem().string();
  name.resize(std::min(name.find_first_of("{*?["), name.size()));
  while (name.ends_with('-') || name.ends_with('_')) name.pop_back();
  return name.empty() ? "images" : name;
}

struct SampleName {
  std::string key;
  std::string ending;  // in lower case; empty: the file is of no sample
};

SampleName parse_name(const std::string& name) {
  const std::size_t base = name.rfind('/') + 1;
  const std::size_t dot = name.find('.', base);
  if (dot == std::string::npos || dot == base) return {};
  return {name.substr(0, dot), in_lower_case(name.substr(dot + 1))};
}

}  // namespace

std::optional<TarSets> find_tars(const std::string& train, const std::string& test) {
  TarSets sets{.train = archives_of(train)};
  if (sets.train.empty()) return std::nullopt;
  sets.name = name_of_tars(train);
  if (fs::is_directory(train)) {
    const auto tests = std::ranges::stable_partition(sets.train, [](const std::string& path) {
      const std::string name = in_lower_case(fs::path(path).filename().string());
      return !name.starts_with("test") && !name.starts_with("val");
    });
    sets.test.assign(tests.begin(), tests.end());
    sets.train.erase(tests.begin(), tests.end());
    if (sets.train.empty()) sets.train.swap(sets.test);
  }
  if (test.empty()) return sets;
  sets.test = archives_of(test);
  if (!sets.test.empty()) return sets;
  throw Error(ErrorSource::input, fmt::format("--test-data {}: there are no .tar archives of that name, as '{}' has: "
                                              "give both sets as archives",
                                              test, train));
}

void TarReader::refuse(std::int64_t byte, const std::string& reason) const {
  throw Error(ErrorSource::input, fmt::format("the archive '{}' cannot be read at byte {}: {}",
                                              paths_[static_cast<std::size_t>(at_.archive)], byte, reason));
}

// Opens the archive at_ if it is not open. False after the last one.
bool TarReader::open_next() {
  if (file_ != nullptr) return true;
  if (at_.archive == std::ssize(paths_)) return false;
  const std::string& path = paths_[static_cast<std::size_t>(at_.archive)];
  std::error_code failure;
  file_bytes_ = static_cast<std::int64_t>(fs::file_size(path, failure));
  file_ = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (failure || !*file_) throw Error(ErrorSource::io, fmt::format("cannot open the archive '{}'", path));
  if (file_->get() == 0x1F && file_->get() == 0x8B) refuse(0, "it is compressed: decompress it first");
  file_->clear();
  file_->seekg(at_.byte);
  return true;
}

std::vector<std::byte> TarReader::read_bytes(std::int64_t bytes) {
  if (bytes > file_bytes_ - at_.byte) refuse(at_.byte, "it is truncated");
  std::vector<std::byte> content(static_cast<std::size_t>(bytes));
  file_->read(reinterpret_cast<char*>(content.data()), bytes);
  if (!*file_) refuse(at_.byte, "it cannot be read further");
  at_.byte += bytes;
  return content;
}

// The content of a member, without its padding.
std::vector<std::byte> TarReader::read_content(const Member& member) {
  std::vector<std::byte> content = read_bytes(member.bytes);
  read_bytes((kBlockBytes - member.bytes % kBlockBytes) % kBlockBytes);
  return content;
}

void TarReader::skip(const Member& member) {
  const std::int64_t blocks = member.bytes / kBlockBytes + (member.bytes % kBlockBytes != 0 ? 1 : 0);
  if (blocks > (file_bytes_ - at_.byte) / kBlockBytes) refuse(at_.byte, "it is truncated");
  at_.byte += blocks * kBlockBytes;
  file_->seekg(at_.byte);
}

// Records "LENGTH KEY=VALUE\n".
void TarReader::apply_pax(const std::string& records, Member& member) const {
  for (std::string_view rest = records; !rest.empty() && rest.front() != '\0';) {
    const std::size_t space = rest.find(' ');
    const auto length = parse_number<std::size_t>(rest.substr(0, space));
    if (!length || space == rest.npos || *length < space + 3 || *length > rest.size()) {
      refuse(member.begin, "its pax header is damaged");
    }
    const std::string_view record = rest.substr(space + 1, *length - space - 2);
    rest.remove_prefix(*length);
    if (record.starts_with("path=")) member.name = record.substr(5);
    if (!record.starts_with("size=")) continue;
    const auto size = parse_number<std::int64_t>(record.substr(5));
    if (!size || *size < 0) refuse(member.begin, "its pax header has a wrong size");
    member.bytes = *size;
  }
}

// The next file, up to its content; nothing at the end of the archive.
std::optional<TarReader::Member> TarReader::read_member() {
  Member member{.begin = at_.byte};
  std::string long_name;
  std::string pax;
  while (true) {
    const std::int64_t begin = at_.byte;
    if (begin == file_bytes_) refuse(begin, "it ends without a tar archive's end: it is truncated");
    const auto bytes = read_bytes(kBlockBytes);
    Block block{};
    std::ranges::transform(bytes, block.begin(), [](std::byte byte) { return static_cast<char>(byte); });
    if (std::ranges::all_of(block, [](char c) { return c == '\0'; })) return std::nullopt;
    const auto size = number_in(block, 124, 12);
    if (!has_right_checksum(block) || !size) {
      refuse(begin, "there is no valid tar header: it is damaged");
    }
    member.type = block[156];
    member.bytes = *size;
    member.name = name_in(block);
    const bool is_long_name = member.type == 'L';
    if (is_long_name || member.type == 'x' || member.type == 'K' || member.type == 'g') {
      if (member.bytes > kMaxHeaderBytes) refuse(begin, fmt::format("it has a header of {} bytes", member.bytes));
      const auto content = read_content(member);
      const std::string text(reinterpret_cast<const char*>(content.data()), content.size());
      if (is_long_name) long_name = text.substr(0, text.find('\0'));
      if (member.type == 'x') pax = text;
      continue;
    }
    if (!long_name.empty()) member.name = long_name;
    apply_pax(pax, member);
    while (member.name.starts_with("./")) member.name.erase(0, 2);
    return member;
  }
}

// Adds a file to its sample.
void TarReader::add(const Member& member, const std::string& ending, TarSample& sample) {
  const bool is_image = has_image_extension(member.name);
  const bool is_file = member.type == '0' || member.type == '\0' || member.type == '7';
  if (is_image && !sample.name.empty()) {
    refuse(member.begin, fmt::format("'{}' and '{}' have the same name before the first dot, so they are one sample",
                                     sample.name, member.name));
  }
  if (is_image) sample.name = member.name;
  if (is_image && is_file && member.bytes <= kMaxImageFileBytes) {
    sample.bytes = read_content(member);
    return;
  }
  if (is_image) {
    sample.problem =
        fmt::format("'{}' in the archive '{}' {}", member.name, paths_[static_cast<std::size_t>(at_.archive)],
                    is_file ? fmt::format("has {} bytes", member.bytes) : "is a link or a special file");
  }
  if (ending != "cls" || !is_file) return skip(member);
  if (member.bytes > kMaxClassBytes) {
    refuse(member.begin, fmt::format("the class in '{}' has {} bytes", member.name, member.bytes));
  }
  const auto content = read_content(member);
  const std::string_view text(reinterpret_cast<const char*>(content.data()), content.size());
  sample.class_name = trimmed(text.substr(0, text.find_last_not_of("\r\n") + 1));
}

std::optional<TarSample> TarReader::next() {
  while (open_next()) {
    TarSample sample;
    std::string key;
    while (true) {
      if (!member_) member_ = read_member();
      if (!member_) break;
      const SampleName name = parse_name(member_->name);
      if (!name.ending.empty()) {
        if (!key.empty() && name.key != key) break;
        key = name.key;
      }
      const Member member = *std::exchange(member_, std::nullopt);
      name.ending.empty() ? skip(member) : add(member, name.ending, sample);
    }
    const std::string& path = paths_[static_cast<std::size_t>(at_.archive)];
    if (!sample.name.empty() && sample.problem.empty() && sample.class_name.empty()) {
      sample.problem =
          fmt::format("'{}' in the archive '{}' has no class: add '{}.cls' beside it", sample.name, path, key);
    }
    if (!member_) {
      file_.reset();
      at_ = {at_.archive + 1, 0};
    }
    if (!sample.name.empty()) return sample;
  }
  return std::nullopt;
}

}  // namespace tutti
