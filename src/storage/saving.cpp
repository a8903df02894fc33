#include "saving.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/uninterrupted.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
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

void fail_saving(const std::string& path, std::string_view action, int error) {
  throw Error(ErrorSource::save, fmt::format("cannot save '{}': {}: {}; {}", path, action,
                                             std::generic_category().message(error), remedy(error)));
}

}  // namespace tutti
