#include "tutti/base/process.hpp"

#include "tutti/base/unique_handle.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace tutti {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::string program_name() { return program_invocation_short_name; }

std::string program_call() { return program_invocation_name; }

std::string_view version() noexcept { return TUTTI_VERSION; }

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

void raise_default(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
  std::_Exit(128 + signal);
}

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  // The kernel refuses a set with fewer cores than it may have.
  std::vector<cpu_set_t> sets(1);
  while (::sched_getaffinity(0, sets.size() * sizeof sets[0], sets.data()) != 0) {
    if (errno != EINVAL || sets.size() > 64) return cores;
    sets.resize(2 * sets.size());
  }
  for (int core = 0; core < static_cast<int>(sets.size()) * CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core % CPU_SETSIZE, &sets[static_cast<std::size_t>(core / CPU_SETSIZE)])) cores.push_back(core);
  }
  return cores;
}

std::span<const std::byte> write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = retry_on_eintr([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (written > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      continue;
    }
    if (written == 0) errno = EIO;  // write() to a file never returns 0 without an error
    if (errno != EAGAIN) break;
    pollfd reader{.fd = descriptor, .events = POLLOUT, .revents = 0};
    if (retry_on_eintr([&] { return ::poll(&reader, 1, -1); }) < 0) break;
  }
  return bytes;
}

}  // namespace tutti
