#include "saving.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"
#include "tutti/storage/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>

namespace tutti {
namespace {

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
    case EEXIST:
    case ELOOP:
      return "remove or rename what has this name, or choose another one";
    case ENXIO:
      return "start what reads from it first";
    case ENAMETOOLONG:
      return "choose a shorter name";
    case EIO:
      return "check the disk or the file server";
    default:
      return "see the system's messages about this file system";
  }
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The links of /proc lead to what a process has open, which may have no name at all.
bool is_link_of_proc(const std::string& path) {
  struct statfs system {};
  return ::statfs(folder_of(path).c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC;
}

std::string behind_links(std::string path) {
  constexpr int kMostLinks = 40;  // as the system's own limit
  for (int links = 0; links < kMostLinks; ++links) {
    std::error_code no_link;
    const std::filesystem::path target = std::filesystem::read_symlink(path, no_link);
    if (no_link || is_link_of_proc(path)) break;
    path = std::filesystem::path(folder_of(path)) / target;
  }
  return path;
}

// What this process has open under the number that a path such as /proc/self/fd/1 ends in: opened anew, a file would be
// written from its beginning, and a socket not at all.
Descriptor duplicate_of(const std::string& path) {
  std::error_code unseen;
  if (!is_link_of_proc(path) || !std::filesystem::equivalent(folder_of(path), "/proc/self/fd", unseen)) return {};
  const std::string name = path.substr(path.rfind('/') + 1);
  int number = -1;
  const auto [rest, status] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (status != std::errc{} || rest != name.data() + name.size()) return {};
  return Descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 0));
}

// Without waiting for whoever reads a pipe.
Descriptor open_stream(const std::string& path) {
  Descriptor stream(
      retry_on_eintr([&] { return ::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC); }));
  if (!stream) fail_saving(path, "opening", errno);
  const int flags = ::fcntl(stream.get(), F_GETFL);
  if (flags < 0 || ::fcntl(stream.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) fail_saving(path, "opening", errno);
  return stream;
}

// Makes the rename itself last. Some file systems cannot flush folders and say so with EINVAL.
void flush_folder(const std::string& path) {
  const Descriptor folder(
      retry_on_eintr([&] { return ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!folder) fail_saving(path, "opening its folder", errno);
  if (retry_on_eintr([&] { return ::fsync(folder.get()); }) != 0 && errno != EINVAL)
    fail_saving(path, "flushing its folder", errno);
}

}  // namespace

OutputPlace find_output(const std::string& path) {
  OutputPlace place{.path = behind_links(path), .stream = {}};
  place.stream = duplicate_of(place.path);
  struct stat status {};
  if (place.stream || ::lstat(place.path.c_str(), &status) != 0) return place;
  if (S_ISDIR(status.st_mode)) fail_saving(path, "opening", EISDIR);
  if (!S_ISREG(status.st_mode)) place.stream = open_stream(place.path);
  return place;
}

std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = retry_on_eintr([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (written == 0) errno = EIO;  // files take something, or say why not
    if (written <= 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return bytes;
}

void rename_for_good(const std::string& temporary, const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    fail_saving(path, "renaming", EEXIST);
  }
  if (retry_on_eintr([&] { return std::rename(temporary.c_str(), path.c_str()); }) != 0) {
    fail_saving(path, "renaming", errno);
  }
  flush_folder(path);
}

void fail_saving(const std::string& path, std::string_view action, int error) {
  const std::string text =
      fmt::format("cannot save '{}': {}: {}; {}", path, action, std::generic_category().message(error), remedy(error));
  if (error == ENOSPC || error == EDQUOT) throw NoRoom(text);
  throw Error(ErrorSource::save, text);
}

}  // namespace tutti
