#include "tutti/storage/whole_file.hpp"

#include "tutti/base/checksums.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/unique_handle.hpp"

#include "saving.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <future>
#include <string_view>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr int kMostLeftovers = 100;
constexpr std::size_t kBytesBeforeTheDiskBegins = std::size_t{8} << 20;
constexpr std::size_t kBytesReadBackAtOnce = std::size_t{1} << 20;

[[noreturn]] void fail_reading(const std::string& path, int error) {
  throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path, std::generic_category().message(error)));
}

}  // namespace

WholeFile::WholeFile(const std::string& path) : path_(path) {
  OutputPlace place = find_output(path);
  target_ = std::move(place.path);
  descriptor_ = std::move(place.stream);
  if (descriptor_) {
    is_stream_ = true;
    return;
  }
  // A killed process of the same number may have left its file behind, and on a shared file system another
  // container may have the same host name and number; so an existing file is passed by, never touched.
  const std::string stem = fmt::format("{}.tmp.{}.{}", target_, host_name(), ::getpid());
  for (int leftover = 0; !descriptor_; ++leftover) {
    temporary_ = leftover == 0 ? stem : fmt::format("{}.{}", stem, leftover);
    descriptor_ = Descriptor(retry_on_eintr(
        [&] { return ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666); }));
    const int error = errno;
    if (!descriptor_ && (error != EEXIST || leftover == kMostLeftovers)) {
      fail_saving(path_, fmt::format("creating '{}'", temporary_), error);
    }
  }
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) static_cast<void>(::unlink(temporary_.c_str()));
}

void WholeFile::append(std::span<const std::byte> bytes) {
  flushed_ = false;
  while (!bytes.empty()) {
    const auto next = bytes.first(std::min(bytes.size(), kBytesBeforeTheDiskBegins));
    if (!write_all(descriptor_.get(), next).empty()) fail_saving(path_, "writing", errno);
    bytes = bytes.subspan(next.size());
    // The disk begins now with what it has. Where it cannot, or fails, flushing will do it, or say so.
    if (!bytes.empty()) static_cast<void>(::sync_file_range(descriptor_.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
  }
}

// Full disks and quotas on network file systems may show here for the first time.
void WholeFile::flush() {
  const bool fails = retry_on_eintr([&] { return ::fsync(descriptor_.get()); }) != 0;
  const bool cannot_flush = is_stream_ && (errno == EINVAL || errno == EROFS || errno == ENOTSUP);
  if (fails && !cannot_flush) fail_saving(path_, "flushing to the disk", errno);
  flushed_ = true;
}

void WholeFile::prove(std::span<const std::byte> bytes) {
  flush();
  if (is_stream_) return;
  // Systems that keep their copy in memory all the same give that back.
  static_cast<void>(::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED));
  static_cast<void>(::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
  std::vector<std::byte> read(std::min(bytes.size(), kBytesReadBackAtOnce));
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t wanted = std::min(read.size(), bytes.size() - at);
    const ssize_t got =
        retry_on_eintr([&] { return ::pread(descriptor_.get(), read.data(), wanted, static_cast<off_t>(at)); });
    if (got < 0) fail_saving(path_, "reading back", errno);
    if (got == 0 || std::memcmp(read.data(), bytes.data() + at, static_cast<std::size_t>(got)) != 0) {
      throw Error(
          ErrorSource::save,
          fmt::format("cannot save '{}': what was read back differs from what was written; check the disk", path_));
    }
    at += static_cast<std::size_t>(got);
  }
}

void WholeFile::keep() {
  if (!flushed_) flush();
  if (::close(descriptor_.release()) != 0 && errno != EINTR) fail_saving(path_, "closing", errno);  // closed even so
  if (is_stream_) return;
  rename_for_good(temporary_, target_);
  temporary_.clear();
}

void write_whole(const std::string& path, std::span<const std::byte> bytes) {
  WholeFile file(path);
  file.append(bytes);
  file.prove(bytes);
  file.keep();
}

std::string append_and_sum(WholeFile& file, std::span<const std::byte> bytes) {
  auto sum = std::async(std::launch::async | std::launch::deferred, [bytes] { return sha256_text(bytes); });
  file.append(bytes);
  file.prove(bytes);
  return sum.get();
}

std::vector<std::byte> read_whole(const std::string& path) {
  const Descriptor file(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); }));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) fail_reading(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': it is not a file", path));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::span<std::byte> rest(bytes);
  while (!rest.empty()) {
    const ssize_t got = retry_on_eintr([&] { return ::read(file.get(), rest.data(), rest.size()); });
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;  // it became shorter meanwhile
    rest = rest.subspan(static_cast<std::size_t>(got));
  }
  bytes.resize(bytes.size() - rest.size());
  return bytes;
}

}  // namespace tutti
