#include "last_signals.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace tutti {
namespace {

bool is_ignored(int signal) {
  struct sigaction now {};
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

LastSignals::LastSignals(bool taken) {
  if (!taken) return;
  sigset_t awaited;
  sigemptyset(&awaited);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
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

void end_process_by(int signal) {
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, signal);
  pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  std::raise(signal);
  std::_Exit(128 + signal);
}

}  // namespace tutti
