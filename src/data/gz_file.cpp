#include "gz_file.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tutti {
namespace {

constexpr unsigned kZlibBufferBytes = 128 * 1024;
constexpr std::size_t kMostPerCall = std::size_t{1} << 30;
constexpr std::size_t kLeastGrowth = 64 * 1024;
// The deflate format compresses at best 1032 to 1.
constexpr std::int64_t kBestCompression = 1032;

}  // namespace

void GzFile::Close::operator()(gzFile_s* file) const noexcept { gzclose(file); }

GzFile::GzFile(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code failure;
  const auto size = std::filesystem::file_size(path_, failure);
  if (failure) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path_.string(), failure.message()));
  }
  errno = 0;
  file_ = UniqueHandle<gzFile_s*, Close>(gzopen(path_.c_str(), "rb"));
  if (!file_) {
    const char* reason = errno != 0 ? std::strerror(errno) : "out of memory";
    throw Error(ErrorSource::io, fmt::format("cannot open '{}': {}", path_.string(), reason));
  }
  gzbuffer(file_.get(), kZlibBufferBytes);
  is_raw_ = gzdirect(file_.get()) == 1;
  most_bytes_ = static_cast<std::int64_t>(size) * (is_raw_ ? 1 : kBestCompression);
}

std::size_t GzFile::read_some(std::span<std::uint8_t> bytes) {
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const std::size_t wanted = std::min(bytes.size() - filled, kMostPerCall);
    const int got = gzread(file_.get(), bytes.data() + filled, static_cast<unsigned>(wanted));
    if (got < 0) fail();
    filled += static_cast<std::size_t>(got);
    offset_ += got;
    if (static_cast<std::size_t>(got) == wanted) continue;
    int status = Z_OK;
    gzerror(file_.get(), &status);
    if (status != Z_OK && status != Z_STREAM_END) fail();
    break;
  }
  return filled;
}

void GzFile::read(std::span<std::uint8_t> bytes) {
  const std::int64_t begin = offset_;
  const std::size_t got = read_some(bytes);
  if (got < bytes.size()) {
    refuse(offset_, fmt::format("the content ends here; {} bytes were expected from byte {} on", bytes.size(), begin));
  }
}

void GzFile::append(std::vector<std::uint8_t>& bytes, std::int64_t count) {
  const std::int64_t most = most_bytes_ - offset_;
  if (count > most) {
    refuse(offset_, fmt::format("{} more bytes are promised, but there can be no more than {}", count, most));
  }
  const std::size_t target = bytes.size() + static_cast<std::size_t>(count);
  while (bytes.size() < target) {
    const std::size_t size = bytes.size();
    const std::size_t next = is_raw_ ? target : std::min(target, size + std::max(size, kLeastGrowth));
    bytes.reserve(next);
    bytes.resize(next);
    read(std::span(bytes).subspan(size));
  }
}

void GzFile::expect_end() {
  std::array<std::uint8_t, 1> extra{};
  const std::int64_t end = offset_;
  if (read_some(extra) != 0) refuse(end, "there is more content than the header promises");
}

void GzFile::refuse(std::int64_t offset, const std::string& reason, std::source_location where) const {
  throw Error(ErrorSource::input,
              fmt::format("'{}' is malformed at byte {}{}: {}", path_.string(), offset,
                          is_raw_ ? "" : " of its uncompressed content", reason),
              where);
}

void GzFile::fail() const {
  int status = Z_OK;
  const char* reason = gzerror(file_.get(), &status);
  if (status == Z_ERRNO) {
    throw Error(ErrorSource::io,
                fmt::format("cannot read '{}' at byte {}: {}", path_.string(), offset_, std::strerror(errno)));
  }
  refuse(offset_, fmt::format("the compressed data are damaged or cut off ({})", reason));
}

}  // namespace tutti
