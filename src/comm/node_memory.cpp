#include "node_memory.hpp"

#include "tutti/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

constexpr const char* kRemedy =
    "make it larger (mount -o remount,size=.. /dev/shm; in a container --shm-size), start one rank per host with more "
    "--threads, or use a smaller data set";

[[noreturn]] void throw_system_error(const char* what, const std::string& name, int status) {
  throw Error(ErrorSource::io, fmt::format("cannot {} shared memory {}: {}; all ranks of a host must see the same "
                                           "/dev/shm",
                                           what, name, std::strerror(status)));
}

constexpr std::string_view kStem = "tutti-";
constexpr std::time_t kSecondsToLock = 60;  // the creator locks the file within this time

std::string random_name() {
  std::random_device device;
  return fmt::format("/{}{:08x}{:08x}", kStem, device(), device());
}

// True if the creator has ended, since it would hold the lock.
bool is_stale(int file) {
  struct stat status {};
  return ::fstat(file, &status) == 0 && std::time(nullptr) - status.st_mtime > kSecondsToLock &&
         ::flock(file, LOCK_EX | LOCK_NB) == 0;
}

// Whether random_name() makes such a name.
bool is_ours(const std::string& name) {
  return name.size() == kStem.size() + 16 && name.starts_with(kStem) &&
         name.find_first_not_of("0123456789abcdef", kStem.size()) == std::string::npos;
}

// Files that cannot be opened or removed belong to other users.
void remove_stale() {
  std::error_code failure;
  for (std::filesystem::directory_iterator entry("/dev/shm", failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (!is_ours(name)) continue;
    const Descriptor file(::shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0));
    if (file && is_stale(file.get())) ::shm_unlink(("/" + name).c_str());
  }
}

void require_space(int file, std::size_t bytes, std::size_t allocated) {
  struct statvfs space {};
  // A file system without a size limit reports 0 blocks.
  if (::fstatvfs(file, &space) != 0 || space.f_blocks == 0) return;
  const std::uint64_t available = std::uint64_t{space.f_bavail} * space.f_frsize + allocated;
  if (bytes <= available) return;
  throw Error(ErrorSource::input,
              fmt::format("{:.1f} MiB of shared memory are needed, but only {:.1f} MiB are free in /dev/shm: {}",
                          static_cast<double>(bytes) / 0x1p20, static_cast<double>(available) / 0x1p20, kRemedy));
}

void set_size(int file, const std::string& name, std::size_t bytes) {
  struct stat status {};
  if (::fstat(file, &status) != 0) throw_system_error("inspect", name, errno);
  const auto allocated = static_cast<std::size_t>(status.st_size);
  if (bytes > allocated) require_space(file, bytes, allocated);
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (errno != EFBIG) throw_system_error("size", name, errno);
    throw Error(ErrorSource::input, fmt::format("{:.1f} MiB of shared memory are needed, which is more than the file "
                                                "size limit (ulimit -f): raise that limit",
                                                static_cast<double>(bytes) / 0x1p20));
  }
  if (bytes <= allocated) return;
  // Otherwise, if memory ran out, the first access to a page would kill the process by SIGBUS.
  if (const int failure = allocate_pages(file, allocated, bytes - allocated); failure != 0) {
    throw Error(ErrorSource::input, fmt::format("cannot allocate {:.1f} MiB in /dev/shm: {}; {}",
                                                static_cast<double>(bytes) / 0x1p20, std::strerror(failure), kRemedy));
  }
}

}  // namespace

int allocate_pages(int file, std::size_t begin, std::size_t bytes) {
  int status = EINTR;
  while (status == EINTR) status = ::posix_fallocate(file, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  return status;
}

NodeFile::NodeFile() {
  remove_stale();
  name_ = random_name();
  locked_ = Descriptor(::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!locked_) throw_system_error("create", name_, errno);
  if (::flock(locked_.get(), LOCK_EX) != 0) {
    const int failure = errno;
    ::shm_unlink(name_.c_str());
    throw_system_error("lock", name_, failure);
  }
}

NodeFile::~NodeFile() { ::shm_unlink(name_.c_str()); }

GrowingMemory NodeFile::memory() const {
  Descriptor file(::fcntl(locked_.get(), F_DUPFD_CLOEXEC, 0));
  if (!file) throw_system_error("duplicate", name_, errno);
  return {std::move(file), [name = name_](int allocated, std::size_t bytes) { set_size(allocated, name, bytes); }};
}

GrowingMemory open_node_file(const std::string& name) {
  Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (!file) throw_system_error("open", name, errno);
  return {std::move(file), [](int, std::size_t) {}};
}

}  // namespace tutti
