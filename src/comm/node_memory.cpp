#include "node_memory.hpp"

#include "tutti/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
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

// Files that cannot be opened or removed belong to other users.
void remove_stale() {
  std::error_code failure;
  for (std::filesystem::directory_iterator entry("/dev/shm", failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(kStem)) continue;
    const Descriptor file(::shm_open(("/" + name).c_str(), O_RDWR | O_CLOEXEC, 0));
    if (file && is_stale(file.get())) ::shm_unlink(("/" + name).c_str());
  }
}

void require_space(int file, std::size_t bytes) {
  struct statvfs space {};
  // A file system without a size limit reports 0 blocks.
  if (::fstatvfs(file, &space) != 0 || space.f_blocks == 0) return;
  const std::uint64_t available = std::uint64_t{space.f_bavail} * space.f_frsize;
  if (bytes <= available) return;
  throw Error(ErrorSource::input,
              fmt::format("{:.1f} MiB of shared memory are needed, but only {:.1f} MiB are free in /dev/shm: {}",
                          static_cast<double>(bytes) / 0x1p20, static_cast<double>(available) / 0x1p20, kRemedy));
}

// mmap fails for a length of 0.
std::size_t mapped_bytes(std::size_t bytes) { return std::max<std::size_t>(1, bytes); }

Buffer map(int file, const std::string& name, std::size_t bytes) {
  void* const data = ::mmap(nullptr, mapped_bytes(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (data == MAP_FAILED) throw_system_error("map", name, errno);
  return {data, bytes, MemorySpace::host, [bytes](void* mapped) { ::munmap(mapped, mapped_bytes(bytes)); }};
}

}  // namespace

int allocate_pages(int file, std::size_t bytes) {
  int status = EINTR;
  while (status == EINTR) status = ::posix_fallocate(file, 0, static_cast<off_t>(bytes));
  return status;
}

// Delegates to another constructor, so that the destructor removes the name if this one throws.
NodeMemory::NodeMemory(std::size_t bytes) : NodeMemory() {
  remove_stale();
  name_ = random_name();
  locked_ = Descriptor(::shm_open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!locked_) throw_system_error("create", name_, errno);
  const int file = locked_.get();
  if (::flock(file, LOCK_EX) != 0) throw_system_error("lock", name_, errno);
  require_space(file, bytes);
  if (::ftruncate(file, static_cast<off_t>(mapped_bytes(bytes))) != 0) {
    if (errno != EFBIG) throw_system_error("size", name_, errno);
    throw Error(ErrorSource::input, fmt::format("{:.1f} MiB of shared memory are needed, which is more than the file "
                                                "size limit (ulimit -f): raise that limit",
                                                static_cast<double>(bytes) / 0x1p20));
  }
  // Otherwise, if memory ran out, the first access to a page would kill the process by SIGBUS.
  if (const int status = allocate_pages(file, mapped_bytes(bytes)); status != 0) {
    throw Error(ErrorSource::input, fmt::format("cannot allocate {:.1f} MiB in /dev/shm: {}; {}",
                                                static_cast<double>(bytes) / 0x1p20, std::strerror(status), kRemedy));
  }
  memory_ = map(file, name_, bytes);
}

NodeMemory::~NodeMemory() {
  if (!name_.empty()) ::shm_unlink(name_.c_str());
}

Buffer open_node_memory(const std::string& name, std::size_t bytes) {
  const Descriptor file(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (!file) throw_system_error("open", name, errno);
  return map(file.get(), name, bytes);
}

}  // namespace tutti
