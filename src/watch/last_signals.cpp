#include "last_signals.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/signals.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace tutti {
LastSignals::LastSignals(bool taken) {
  if (!taken) return;
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    if (!is_ignored(signal)) sigaddset(&awaited, signal);
  }
  descriptor_ = Descriptor(::signalfd(-1, &awaited, SFD_NONBLOCK | SFD_CLOEXEC));
  const int failure = descriptor_ ? pthread_sigmask(SIG_BLOCK, &awaited, nullptr) : errno;
  if (failure != 0) {
    throw Error(ErrorSource::internal, fmt::format("cannot watch for signals to end: {}", std::strerror(failure)));
  }
}

int LastSignals::take() const {
  signalfd_siginfo come{};
  if (!descriptor_ || ::read(descriptor_.get(), &come, sizeof come) != sizeof come) return 0;
  return static_cast<int>(come.ssi_signo);
}

}  // namespace tutti
