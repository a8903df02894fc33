#include "tutti/storage/seal.hpp"

#include "tutti/base/digest.hpp"
#include "tutti/base/error.hpp"
#include "tutti/storage/atomic_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <system_error>

namespace tutti {
namespace {

constexpr std::array<char, 8> kMark{'t', 'u', 't', 't', 'i', 's', 'e', 'a'};
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// The end of the seal, after the uncovered ranges.
struct SealTail {
  std::uint64_t ranges = 0;
  std::uint64_t length = 0;
  std::uint64_t digest = 0;
  std::array<char, 8> mark = kMark;
};

// Reads the bytes from `offset` on.
using Read = std::function<void(std::uint64_t offset, std::span<std::byte> piece)>;

// Reads a file, and sets `bytes` to its size.
Read reader_of(const std::string& path, std::uint64_t& bytes) {
  errno = 0;
  const auto file = std::make_shared<std::ifstream>(path, std::ios::binary);
  const auto require = [path](bool good) {
    if (good) return;
    throw Error(ErrorSource::io,
                fmt::format("cannot read '{}': {}", path, std::generic_category().message(errno == 0 ? EIO : errno)));
  };
  std::error_code failure;
  bytes = std::filesystem::file_size(path, failure);
  require(!failure && *file);
  return [file, require](std::uint64_t offset, std::span<std::byte> piece) {
    file->seekg(static_cast<std::streamoff>(offset));
    file->read(reinterpret_cast<char*>(piece.data()), static_cast<std::streamsize>(piece.size()));
    require(file->good());
  };
}

// The digest of all bytes before `length` except the given ranges, which must be sorted.
std::uint64_t digest_around(const Read& read, std::span<const ByteRange> uncovered, std::uint64_t length) {
  std::vector<std::uint8_t> piece;
  std::uint64_t sum = 0;
  std::uint64_t covered = 0;
  std::uint64_t at = 0;
  const auto cover_to = [&](std::uint64_t end) {
    while (at < end) {
      piece.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kPieceBytes, end - at)));
      read(at, std::as_writable_bytes(std::span(piece)));
      sum += digest("file", std::span<const std::uint8_t>(piece), covered);
      at += piece.size();
      covered += piece.size();
    }
  };
  std::vector<std::int64_t> numbers;
  for (const ByteRange& range : uncovered) {
    cover_to(range.offset);
    at = range.offset + range.length;
    numbers.push_back(static_cast<std::int64_t>(range.offset));
    numbers.push_back(static_cast<std::int64_t>(range.length));
  }
  cover_to(length);
  return sum + digest("runs", std::span<const std::int64_t>(numbers));
}

std::vector<ByteRange> joined(std::vector<ByteRange> ranges) {
  std::ranges::sort(ranges, {}, &ByteRange::offset);
  std::vector<ByteRange> all;
  for (const ByteRange& range : ranges) {
    if (!all.empty() && all.back().offset + all.back().length == range.offset) {
      all.back().length += range.length;
    } else {
      all.push_back(range);
    }
  }
  return all;
}

std::vector<std::byte> seal_of(const Read& read, std::vector<ByteRange> uncovered, std::uint64_t length) {
  const std::vector<ByteRange> all = joined(std::move(uncovered));
  const SealTail tail{all.size(), length, digest_around(read, all, length)};
  const auto front = std::as_bytes(std::span(all));
  const auto back = std::as_bytes(std::span(&tail, 1));
  std::vector<std::byte> seal(front.begin(), front.end());
  seal.insert(seal.end(), back.begin(), back.end());
  return seal;
}

bool are_in_order(std::span<const ByteRange> ranges, std::uint64_t length) {
  std::uint64_t end = 0;
  for (const ByteRange& range : ranges) {
    if (range.offset < end || range.offset > length || range.length > length - range.offset) return false;
    end = range.offset + range.length;
  }
  return true;
}

[[noreturn]] void refuse(const std::string& path, const char* reason) {
  throw Error(ErrorSource::input, fmt::format("'{}' {}", path, reason));
}

void check_seal(const Read& read, std::uint64_t bytes, const std::string& path) {
  SealTail tail{.mark = {}};
  const std::uint64_t before_tail = bytes - std::min<std::uint64_t>(bytes, sizeof tail);
  if (bytes >= sizeof tail) read(before_tail, std::as_writable_bytes(std::span(&tail, 1)));
  if (tail.mark != kMark) refuse(path, "has no seal: it was not written by this program, or is cut short");
  if (tail.length > before_tail || tail.ranges != (before_tail - tail.length) / sizeof(ByteRange) ||
      (before_tail - tail.length) % sizeof(ByteRange) != 0 || tail.ranges > kPieceBytes) {
    refuse(path, "is damaged: its seal is for a file of another length");
  }
  std::vector<ByteRange> uncovered(static_cast<std::size_t>(tail.ranges));
  read(tail.length, std::as_writable_bytes(std::span(uncovered)));
  if (!are_in_order(uncovered, tail.length) || digest_around(read, uncovered, tail.length) != tail.digest) {
    refuse(path, "is damaged: its structures do not have the digest in its seal");
  }
}

Read reader_of(std::span<const std::byte> contents) {
  return [contents](std::uint64_t offset, std::span<std::byte> piece) {
    std::ranges::copy(contents.subspan(static_cast<std::size_t>(offset), piece.size()), piece.begin());
  };
}

}  // namespace

std::vector<std::byte> seal_for(const std::string& path, std::vector<ByteRange> uncovered) {
  std::uint64_t bytes = 0;
  const Read read = reader_of(path, bytes);
  return seal_of(read, std::move(uncovered), bytes);
}

std::vector<std::byte> seal_for(std::span<const std::byte> contents, std::vector<ByteRange> uncovered) {
  return seal_of(reader_of(contents), std::move(uncovered), contents.size());
}

void check_seal(const std::string& path) {
  if (!is_plain_file(path)) {
    throw Error(ErrorSource::io, fmt::format("cannot open '{}': it is not a file", path));
  }
  std::uint64_t bytes = 0;
  const Read read = reader_of(path, bytes);
  check_seal(read, bytes, path);
}

void check_seal_if_present(std::span<const std::byte> contents, const std::string& path) {
  constexpr std::size_t kLengthAt = 40;  // of HDF5's own bytes, in its superblock
  std::uint64_t length = 0;
  if (contents.size() >= kLengthAt + sizeof length) std::memcpy(&length, contents.data() + kLengthAt, sizeof length);
  const auto mark = std::as_bytes(std::span(kMark));
  const bool has_mark = contents.size() >= mark.size() && std::ranges::equal(contents.last(mark.size()), mark);
  if (!has_mark && length == contents.size()) return;
  check_seal(reader_of(contents), contents.size(), path);
}

}  // namespace tutti
