#include "standard_streams.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/uninterrupted.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <system_error>

namespace tutti {
namespace {

std::atomic<int> failure = 0;

// Takes everything, whatever becomes of it.
ssize_t write_remembering(void* /*cookie*/, const char* text, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = uninterrupted([&] { return ::write(STDOUT_FILENO, text + done, size - done); });
    if (written <= 0) {
      int none = 0;
      failure.compare_exchange_strong(none, written < 0 ? errno : EIO);
      break;
    }
    done += static_cast<std::size_t>(written);
  }
  return static_cast<ssize_t>(size);
}

}  // namespace

void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // It gets the lowest number that is free, which is this one.
    static_cast<void>(::open("/dev/null", descriptor == STDOUT_FILENO ? O_RDONLY : O_RDWR));
  }
  std::FILE* const remembering =
      ::fopencookie(nullptr, "w", {.read = nullptr, .write = write_remembering, .seek = nullptr, .close = nullptr});
  if (remembering == nullptr) return;  // then failures are seen at exit, if at all
  std::setvbuf(remembering, nullptr, ::isatty(STDOUT_FILENO) == 1 ? _IOLBF : _IOFBF, BUFSIZ);
  stdout = remembering;
}

int stdout_failure() noexcept { return failure; }

void require_stdout() {
  static_cast<void>(std::fflush(stdout));
  if (failure == 0) return;
  throw Error(ErrorSource::save, fmt::format("cannot write to stdout: {}; what was printed is lost: give it a file, a "
                                             "pipe or a terminal that takes it",
                                             std::generic_category().message(failure)));
}

bool stdout_is_abandoned() noexcept {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

}  // namespace tutti
