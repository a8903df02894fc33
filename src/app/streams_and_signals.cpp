#include "streams_and_signals.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/log.hpp"
#include "tutti/base/process.hpp"
#include "tutti/base/timing.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

namespace tutti {
namespace {

std::atomic<int> failure = 0;

// Always reports success, and remembers the first failure.
ssize_t write_remembering(void* /*cookie*/, const char* text, std::size_t size) {
  if (!write_all(STDOUT_FILENO, std::as_bytes(std::span(text, size))).empty()) {
    int none = 0;
    failure.compare_exchange_strong(none, errno);
  }
  return static_cast<ssize_t>(size);
}

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGUSR1);
  for (const int signal : {SIGINT, SIGHUP}) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  }
  return signals;
}

}  // namespace

void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) continue;
    // open() returns the lowest free number, which is this one.
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
  throw Error(ErrorSource::save, fmt::format("cannot write to stdout: {}; the output is lost: redirect it to a file, a "
                                             "pipe or a terminal that can be written",
                                             std::generic_category().message(failure)));
}

bool stdout_is_abandoned() noexcept {
  pollfd output{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & POLLERR) != 0;
}

// stdout is for results, and under mpirun it always looks like a terminal. Progress is never drawn into a file, even
// with --progress always.
bool draws_progress(const RunConfig& config) {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0 || S_ISREG(status.st_mode)) return false;
  const bool terminal = ::isatty(STDERR_FILENO) == 1 && !config.output.quiet;
  return config.output.progress == ShowProgress::always ||
         (config.output.progress == ShowProgress::automatic && terminal);
}

double seconds_since_process_start() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');
  std::istringstream fields(name_end == std::string::npos ? "" : text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double start_ticks = 0;
  fields >> start_ticks;
  timespec now{};
  if (!fields || clock_gettime(CLOCK_BOOTTIME, &now) != 0) {
    throw Error(ErrorSource::io, "cannot read this process's start from /proc/self/stat: is /proc mounted?");
  }
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         start_ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::function<double()> process_clock() {
  return [before = seconds_since_process_start(), since = Stopwatch()] { return before + since.seconds(); };
}

// pthread_sigmask cannot fail for sets of valid signals.
void block_stop_signals() noexcept {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void unblock_stop_signals() noexcept {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

StopSignals::StopSignals(std::function<void(int)> on_first, double start_seconds)
    : awaited_(stop_signals()), on_first_(std::move(on_first)), start_seconds_(start_seconds) {
  block_stop_signals();
  std::signal(SIGPIPE, SIG_IGN);
  listener_ = std::thread([this] { listen(); });
}

StopSignals::~StopSignals() {
  is_ending_ = true;
  pthread_kill(listener_.native_handle(), SIGTERM);  // ends its sigwait
  listener_.join();
  const timespec at_once{};
  while (sigtimedwait(&awaited_, nullptr, &at_once) > 0) continue;  // drops signals that came too late
}

void StopSignals::listen() {
  constexpr timespec kBetweenChecks{.tv_sec = 0, .tv_nsec = 100'000'000};
  int interrupts = 0;
  std::optional<Stopwatch> since_first;
  while (true) {
    const bool has_deadline = since_first && !is_polled_;
    const int signal =
        has_deadline ? sigtimedwait(&awaited_, nullptr, &kBetweenChecks) : sigwaitinfo(&awaited_, nullptr);
    if (is_ending_) return;
    if (has_deadline && !is_polled_ && since_first->seconds() > start_seconds_) end_start();
    if (signal <= 0) continue;  // interrupted, or time for a check
    int none = 0;
    if (first_.compare_exchange_strong(none, signal) && on_first_) on_first_(signal);
    if (!since_first) since_first.emplace();
    received_ |= std::uint64_t{1} << signal;
    if (signal == SIGINT && ++interrupts == 2) raise_default(SIGINT);
  }
}

void StopSignals::end_start() const {
  write_stderr_line(
      fmt::format("{}: {} arrived {:.0f} s ago, and the start has not ended: the run ends, and saves nothing",
                  program_name(), signal_name(first_), start_seconds_));
  std::_Exit(static_cast<int>(ExitStatus::stopped));
}

std::string signal_name(int signal) {
  return signal == SIGPIPE ? "a closed stdout" : fmt::format("SIG{}", ::sigabbrev_np(signal));
}

}  // namespace tutti
