#include "tutti/storage/atomic_file.hpp"

#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr int kMaxLeftovers = 100;
constexpr std::size_t kWritebackChunkBytes = std::size_t{8} << 20;
constexpr std::size_t kReadBackChunkBytes = std::size_t{1} << 20;

const char* remedy(int error) {
  static constexpr std::pair<int, const char*> kRemedies[]{
      {ENOSPC, "free space on this file system, or choose another folder"},
      {EDQUOT, "free some of your quota, or choose another folder"},
      {EFBIG, "raise the file size limit (ulimit -f)"},
      {EACCES, "allow this user to write in the folder, or choose another one"},
      {EPERM, "allow this user to write in the folder, or choose another one"},
      {EROFS, "choose a folder on a file system that can be written"},
      {ENOENT, "make the folder first, or correct the path"},
      {ENOTDIR, "make the folder first, or correct the path"},
      {EISDIR, "remove or rename the folder of this name"},
      {EEXIST, "remove or rename what has this name, or choose another one"},
      {ELOOP, "remove or rename what has this name, or choose another one"},
      {ENXIO, "start what reads from it first"},
      {ENAMETOOLONG, "choose a shorter name"},
      {EIO, "check the disk or the file server"}};
  const auto* found = std::ranges::find(kRemedies, error, &std::pair<int, const char*>::first);
  return found == std::end(kRemedies) ? "see the system's messages about this file system" : found->second;
}

std::string folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

// Links in /proc lead to files that a process has open, which may have no name.
bool is_link_of_proc(const std::string& path) {
  struct statfs system {};
  return ::statfs(folder_of(path).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

// A duplicate of the descriptor that a path such as /proc/self/fd/1 refers to; empty for other paths. Opening such a
// path again would write a file from its beginning, and fails for a socket.
Descriptor duplicate_of(const std::string& path) {
  std::error_code unseen;
  if (!is_link_of_proc(path) || !std::filesystem::equivalent(folder_of(path), "/proc/self/fd", unseen)) return {};
  const auto number = parse_number<int>(path.substr(path.rfind('/') + 1));
  return number ? Descriptor(::fcntl(*number, F_DUPFD_CLOEXEC, 0)) : Descriptor{};
}

// Fails at once, instead of blocking, for a pipe without a reader.
Descriptor open_stream(const std::string& path) {
  Descriptor stream(
      retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); }));
  if (!stream) fail_saving(path, "opening", errno);
  const int flags = ::fcntl(stream.get(), F_GETFL);
  if (flags < 0 || ::fcntl(stream.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) fail_saving(path, "opening", errno);
  return stream;
}

// Makes a rename durable. Some file systems cannot flush folders and return EINVAL.
void flush_folder(const std::string& path) {
  const Descriptor folder(
      retry_on_eintr([&] { return ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!folder) fail_saving(path, "opening its folder", errno);
  if (retry_on_eintr([&] { return ::fsync(folder.get()); }) != 0 && errno != EINVAL)
    fail_saving(path, "flushing its folder", errno);
}

// The destination of a saved file. Only a regular file, or a missing one, may be replaced. Other files, such as devices
// and pipes, are opened and written to.
struct Output {
  std::string path;   // with symbolic links resolved
  Descriptor stream;  // open for a device, a pipe or /dev/stdout
};

// Throws for a folder, and for a pipe without a reader, since writing to it would block.
Output find_output(const std::string& path) {
  Output output{.path = resolve_links(path), .stream = {}};
  output.stream = duplicate_of(output.path);
  struct stat status {};
  if (output.stream || ::lstat(output.path.c_str(), &status) != 0) return output;
  if (S_ISDIR(status.st_mode)) fail_saving(path, "opening", EISDIR);
  if (!S_ISREG(status.st_mode)) output.stream = open_stream(output.path);
  return output;
}

[[noreturn]] void fail_reading(const std::string& path, int error) {
  throw Error(ErrorSource::io, fmt::format("cannot read '{}': {}", path, std::generic_category().message(error)));
}

// False if the file cannot be read.
bool ends_within_a_line(const std::string& path, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size == 0) return false;
  const Descriptor reader(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  char last = '\n';
  const ssize_t got = retry_on_eintr([&] { return ::pread(reader.get(), &last, 1, status.st_size - 1); });
  return got == 1 && last != '\n';
}

}  // namespace

std::string resolve_links(std::string path) {
  constexpr int kMaxLinks = 40;  // the kernel's own limit
  for (int links = 0; links < kMaxLinks; ++links) {
    std::error_code no_link;
    const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
    if (no_link || is_link_of_proc(path)) break;
    path = std::filesystem::path(folder_of(path)) / target;
  }
  return path;
}

void fail_saving(const std::string& path, std::string_view action, int error) {
  const std::string text =
      fmt::format("cannot save '{}': {}: {}; {}", path, action, std::generic_category().message(error), remedy(error));
  if (error == ENOSPC || error == EDQUOT) throw DiskFull(text);
  throw Error(ErrorSource::save, text);
}

void rename_durably(std::string& temporary, const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    fail_saving(path, "renaming", EEXIST);
  }
  if (retry_on_eintr([&] { return std::rename(temporary.c_str(), path.c_str()); }) != 0) {
    fail_saving(path, "renaming", errno);
  }
  temporary.clear();
  flush_folder(path);
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  Output output = find_output(path);
  target_ = std::move(output.path);
  descriptor_ = std::move(output.stream);
  if (descriptor_) return;
  // An existing file of this name is never touched: it may be left from a killed process with the same process ID or,
  // on a shared file system, belong to another container with the same host name and process ID.
  const std::string stem = fmt::format("{}{}{}.{}", target_, kTemporaryMark, host_name(), ::getpid());
  for (int leftover = 0; !descriptor_; ++leftover) {
    temporary_ = leftover == 0 ? stem : fmt::format("{}.{}", stem, leftover);
    descriptor_ = Descriptor(retry_on_eintr(
        [&] { return ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666); }));
    const int error = errno;
    if (!descriptor_ && (error != EEXIST || leftover == kMaxLeftovers)) {
      fail_saving(path_, fmt::format("creating '{}'", temporary_), error);
    }
  }
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) static_cast<void>(::unlink(temporary_.c_str()));
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  flushed_ = false;
  while (!bytes.empty()) {
    const auto next = bytes.first(std::min(bytes.size(), kWritebackChunkBytes));
    if (!write_all(descriptor_.get(), next).empty()) fail_saving(path_, "writing", errno);
    bytes = bytes.subspan(next.size());
    // Starts writeback now. A failure is ignored, since flush() would report it.
    if (!bytes.empty()) static_cast<void>(::sync_file_range(descriptor_.get(), 0, 0, SYNC_FILE_RANGE_WRITE));
  }
}

// On network file systems, a full disk or quota may be reported only here.
void AtomicFile::flush() {
  const bool fails = retry_on_eintr([&] { return ::fsync(descriptor_.get()); }) != 0;
  const bool cannot_flush = temporary_.empty() && (errno == EINVAL || errno == EROFS || errno == ENOTSUP);
  if (fails && !cannot_flush) fail_saving(path_, "flushing to the disk", errno);
  flushed_ = true;
}

void AtomicFile::verify(std::span<const std::byte> bytes) {
  flush();
  if (temporary_.empty()) return;
  // Asks the kernel to drop the file from its page cache, so that it is read from the disk if possible.
  static_cast<void>(::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_DONTNEED));
  static_cast<void>(::posix_fadvise(descriptor_.get(), 0, 0, POSIX_FADV_SEQUENTIAL));
  std::vector<std::byte> read(std::min(bytes.size(), kReadBackChunkBytes));
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

void AtomicFile::commit() {
  if (!flushed_) flush();
  if (::close(descriptor_.release()) != 0 && errno != EINTR)
    fail_saving(path_, "closing", errno);  // EINTR: it is closed
  if (temporary_.empty()) return;
  rename_durably(temporary_, target_);
}

void write_atomically(const std::string& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.append(bytes);
  file.verify(bytes);
  file.commit();
}

bool file_exists(const std::string& path) {
  std::error_code unseen;
  return std::filesystem::exists(path, unseen);
}

bool is_plain_file(const std::string& path) {
  std::error_code unseen;
  return std::filesystem::is_regular_file(path, unseen);
}

bool is_folder(const std::string& path) {
  std::error_code unseen;
  return std::filesystem::is_directory(path, unseen);
}

std::vector<std::byte> read_file_bytes(const std::string& path) {
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
    if (got == 0) break;  // the file was truncated meanwhile
    rest = rest.subspan(static_cast<std::size_t>(got));
  }
  bytes.resize(bytes.size() - rest.size());
  return bytes;
}

std::string read_file_text(const std::string& path) {
  const auto bytes = read_file_bytes(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

LineFile::LineFile(const std::string& path, EarlierLines earlier) : path_(path) {
  Output output = find_output(path);
  descriptor_ = std::move(output.stream);
  if (descriptor_) return;
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (earlier == EarlierLines::dropped ? O_TRUNC : 0);
  descriptor_ = Descriptor(retry_on_eintr([&] { return ::open(output.path.c_str(), flags, 0666); }));
  if (!descriptor_) fail_saving(path_, "opening", errno);
  has_partial_line_ = ends_within_a_line(output.path, descriptor_.get());
}

void LineFile::append(const std::string& line) {
  const std::string whole = (has_partial_line_ ? "\n" : "") + line + "\n";
  const std::size_t left = write_all(descriptor_.get(), std::as_bytes(std::span(whole))).size();
  const int error = errno;
  if (left < whole.size()) has_partial_line_ = whole[whole.size() - left - 1] != '\n';
  if (left > 0) fail_saving(path_, "writing", error);
}

}  // namespace tutti
