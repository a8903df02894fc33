#include "tutti/storage/whole_file.hpp"

#include "tutti/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

namespace tutti {
namespace {

constexpr int kMostLeftovers = 100;

std::string_view remedy(int error) {
  switch (error) {
    case ENOSPC:
      return "free space on this file system, or choose another folder";
    case EDQUOT:
      return "free some of your quota, or choose another folder";
    case EFBIG:
      return "raise the file size limit (ulimit -f)";
    case EACCES:
    case EPERM:
      return "allow this user to write in the folder, or choose another one";
    case EROFS:
      return "choose a folder on a file system that can be written";
    case ENOENT:
    case ENOTDIR:
      return "make the folder first, or correct the path";
    case EISDIR:
      return "remove or rename the folder of this name";
    case ENAMETOOLONG:
      return "choose a shorter name";
    case EIO:
      return "check the disk or the file server";
    default:
      return "see the system's messages about this file system";
  }
}

[[noreturn]] void fail(const std::string& path, std::string_view action, int error) {
  throw Error(ErrorSource::save, fmt::format("cannot save '{}': {}: {}; {}", path, action,
                                             std::generic_category().message(error), remedy(error)));
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

// Makes the rename itself last. Some file systems cannot flush folders and say so with EINVAL.
void flush_folder(const std::string& path) {
  const Descriptor folder(::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail(path, "opening its folder", errno);
  if (::fsync(folder.get()) != 0 && errno != EINVAL) fail(path, "flushing its folder", errno);
}

[[noreturn]] void fail_reading(const std::string& path, int error) {
  throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path, std::generic_category().message(error)));
}

}  // namespace

void CloseDescriptor::operator()(int descriptor) const noexcept { static_cast<void>(::close(descriptor)); }

WholeFile::WholeFile(const std::string& path) : path_(path) {
  // A killed process of the same number may have left its file behind, and on a shared file system another
  // container may have the same host name and number; so an existing file is passed by, never touched.
  const std::string stem = fmt::format("{}.tmp.{}.{}", path, host_name(), ::getpid());
  for (int leftover = 0; !descriptor_; ++leftover) {
    temporary_ = leftover == 0 ? stem : fmt::format("{}.{}", stem, leftover);
    descriptor_ = Descriptor(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
    const int error = errno;
    if (!descriptor_ && (error != EEXIST || leftover == kMostLeftovers)) {
      fail(path_, fmt::format("creating '{}'", temporary_), error);
    }
  }
}

WholeFile::~WholeFile() {
  if (!temporary_.empty()) static_cast<void>(::unlink(temporary_.c_str()));
}

void WholeFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_, "writing", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
}

// Full disks and quotas on network file systems may show here for the first time.
void WholeFile::keep() {
  if (::fsync(descriptor_.get()) != 0) fail(path_, "flushing to the disk", errno);
  if (::close(descriptor_.release()) != 0 && errno != EINTR) fail(path_, "closing", errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "renaming", errno);
  temporary_.clear();
  flush_folder(path_);
}

void write_whole(const std::string& path, std::span<const std::byte> bytes) {
  WholeFile file(path);
  file.append(bytes);
  file.keep();
}

std::vector<std::byte> read_whole(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) fail_reading(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorSource::io, fmt::format("cannot read '{}': it is not a file", path));
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(status.st_size));
  std::span<std::byte> rest(bytes);
  while (!rest.empty()) {
    const ssize_t got = ::read(file.get(), rest.data(), rest.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading(path, errno);
    if (got == 0) break;  // it became shorter meanwhile
    rest = rest.subspan(static_cast<std::size_t>(got));
  }
  bytes.resize(bytes.size() - rest.size());
  return bytes;
}

}  // namespace tutti
