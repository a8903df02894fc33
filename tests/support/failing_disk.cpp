// A library that simulates a failing disk in a program that preloads it. Of the calls that change files below a folder,
// or read back what was written there, one fails, or all from that one on. The environment configures it:
//   FAILING_DISK_FOLDER  which folder
//   FAILING_DISK_LOG     a file to which every such call adds a line: number, name, path, "done" or the fault
//   FAILING_DISK_PLAN    nothing, or: number of a call, "once" or "lasting", and a fault: ENOSPC, EDQUOT, EIO, EINTR,
//                        "short" (half of a write), "before", "half", "after" (killed then)

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

using Path = std::array<char, 4096>;

struct Plan {
  std::string_view folder;
  int log = -1;
  long call = 0;  // 0: none
  bool lasting = false;
  std::array<char, 8> fault{};

  bool hits(long number) const {
    if (call == 0 || !lasting || number < call) return number == call;
    // No program could make progress if every call were interrupted, so every other one is.
    return std::string_view(fault.data()) != "EINTR" || (number - call) % 2 == 0;
  }
};

std::string_view environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

Plan read_plan() {
  Plan plan{.folder = environment("FAILING_DISK_FOLDER")};
  plan.log = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, environment("FAILING_DISK_LOG").data(),
                                        O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  std::array<char, 8> duration{};
  const char* text = environment("FAILING_DISK_PLAN").data();
  if (std::sscanf(text, "%ld %7s %7s", &plan.call, duration.data(), plan.fault.data()) != 3) plan.call = 0;
  plan.lasting = std::string_view(duration.data()) == "lasting";
  return plan;
}

const Plan& plan() {
  static const Plan plan = read_plan();
  return plan;
}

int error_of(std::string_view fault) {
  if (fault == "ENOSPC") return ENOSPC;
  if (fault == "EDQUOT") return EDQUOT;
  return fault == "EINTR" ? EINTR : EIO;
}

std::atomic<long> calls = 0;

struct Attempt {
  std::string_view name;
  const char* path;
  std::size_t bytes = 0;  // of a write
};

void note(long number, const Attempt& attempt, std::string_view what) {
  std::array<char, sizeof(Path) + 100> line{};
  const int length =
      std::snprintf(line.data(), line.size(), "%ld %s %s %s\n", number, attempt.name.data(), attempt.path, what.data());
  ::syscall(SYS_write, plan().log, line.data(), static_cast<std::size_t>(length));
}

[[noreturn]] void die() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

template <class Call>
long fail(long number, const Attempt& attempt, Call call) {
  const std::string_view fault(plan().fault.data());
  if (fault == "before") die();
  if (fault == "half" || fault == "short") {
    const long result = call((attempt.bytes + 1) / 2);
    if (fault == "half") die();
    return result;
  }
  if (fault == "after") {
    if (call(attempt.bytes) >= 0) note(number, attempt, "done");
    die();
  }
  if (attempt.name == "close") call(0);  // a failed close() closes the descriptor, too
  note(number, attempt, fault);
  errno = error_of(fault);
  return -1;
}

bool is_watched(const char* path) {
  const std::string_view folder = plan().folder;
  return !folder.empty() && std::strncmp(path, folder.data(), folder.size()) == 0;
}

template <class Call>
long through(const Attempt& attempt, Call call) {
  if (!is_watched(attempt.path)) return call(attempt.bytes);
  const long number = ++calls;
  if (plan().hits(number)) return fail(number, attempt, call);
  const long result = call(attempt.bytes);
  const int error = errno;
  note(number, attempt, result < 0 ? std::strerror(error) : "done");
  errno = error;
  return result;
}

template <class Call>
long through(std::string_view name, int descriptor, std::size_t bytes, Call call) {
  const int error = errno;
  std::array<char, 40> link{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", descriptor);
  Path path{};
  if (::readlink(link.data(), path.data(), path.size() - 1) < 0) path[0] = '\0';
  errno = error;
  return through(Attempt{name, path.data(), bytes}, call);
}

int open_at(int folder, const char* path, int flags, mode_t mode) {
  return static_cast<int>(
      through(Attempt{"open", path}, [&](std::size_t) { return ::syscall(SYS_openat, folder, path, flags, mode); }));
}

mode_t mode_of(int flags, va_list more) { return (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0; }

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_at(folder, path, flags, mode);
}

ssize_t write(int descriptor, const void* from, std::size_t bytes) {
  return through("write", descriptor, bytes,
                 [&](std::size_t some) { return ::syscall(SYS_write, descriptor, from, some); });
}

ssize_t pread(int descriptor, void* to, std::size_t bytes, off_t offset) {
  return through("pread", descriptor, 0,
                 [&](std::size_t) { return ::syscall(SYS_pread64, descriptor, to, bytes, offset); });
}

int fsync(int descriptor) {
  return static_cast<int>(
      through("fsync", descriptor, 0, [&](std::size_t) { return ::syscall(SYS_fsync, descriptor); }));
}

int ftruncate(int descriptor, off_t length) noexcept {
  return static_cast<int>(
      through("ftruncate", descriptor, 0, [&](std::size_t) { return ::syscall(SYS_ftruncate, descriptor, length); }));
}

int close(int descriptor) {
  return static_cast<int>(
      through("close", descriptor, 0, [&](std::size_t) { return ::syscall(SYS_close, descriptor); }));
}

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(through(Attempt{"rename", to},
                                  [&](std::size_t) { return ::syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to); }));
}

int unlink(const char* path) noexcept {
  return static_cast<int>(
      through(Attempt{"unlink", path}, [&](std::size_t) { return ::syscall(SYS_unlinkat, AT_FDCWD, path, 0); }));
}

int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(
      through(Attempt{"mkdir", path}, [&](std::size_t) { return ::syscall(SYS_mkdirat, AT_FDCWD, path, mode); }));
}

}  // extern "C"
