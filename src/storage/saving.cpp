#include "saving.hpp"

#include "tutti/base/descriptor.hpp"
#include "tutti/base/error.hpp"
#include "tutti/base/uninterrupted.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
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

// Makes the rename itself last. Some file systems cannot flush folders and say so with EINVAL.
void flush_folder(const std::string& path) {
  const Descriptor folder(
      uninterrupted([&] { return ::open(folder_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
  if (!folder) fail_saving(path, "opening its folder", errno);
  if (uninterrupted([&] { return ::fsync(folder.get()); }) != 0 && errno != EINVAL)
    fail_saving(path, "flushing its folder", errno);
}

}  // namespace

std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (written == 0) errno = EIO;  // files take something, or say why not
    if (written <= 0) break;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return bytes;
}

void rename_for_good(const std::string& temporary, const std::string& path) {
  if (uninterrupted([&] { return std::rename(temporary.c_str(), path.c_str()); }) != 0) {
    fail_saving(path, "renaming", errno);
  }
  flush_folder(path);
}

void fail_saving(const std::string& path, std::string_view action, int error) {
  throw Error(ErrorSource::save, fmt::format("cannot save '{}': {}: {}; {}", path, action,
                                             std::generic_category().message(error), remedy(error)));
}

}  // namespace tutti
