#include "stop_signals.hpp"

#include "tutti/base/error.hpp"

#include <fmt/format.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace tutti {
namespace {

// A handler reaches nothing but what is static.
std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);
std::atomic_flag is_listening;

extern "C" void note_signal(int signal) {
  int none = 0;
  first_signal.compare_exchange_strong(none, signal);
}

}  // namespace

StopSignals::StopSignals() {
  if (is_listening.test_and_set()) throw Error(ErrorSource::internal, "stop signals are listened to already");
  first_signal = 0;
  for (const int signal : {SIGTERM, SIGUSR1, SIGINT}) {
    struct sigaction note {};
    note.sa_handler = note_signal;
    note.sa_flags = SA_RESTART | (signal == SIGINT ? static_cast<int>(SA_RESETHAND) : 0);
    struct sigaction before {};
    const bool stays_ignored =
        signal == SIGINT && sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN;
    if (stays_ignored) continue;
    if (sigaction(signal, &note, &before) != 0) {
      const int failure = errno;
      restore();
      throw Error(ErrorSource::internal,
                  fmt::format("cannot listen to {}: {}", signal_name(signal), std::strerror(failure)));
    }
    before_.emplace_back(signal, before);
  }
}

StopSignals::~StopSignals() { restore(); }

// Nothing can be done about a failure here; the noting handler is harmless.
void StopSignals::restore() const noexcept {
  for (const auto& [signal, before] : before_) static_cast<void>(sigaction(signal, &before, nullptr));
  is_listening.clear();
}

int StopSignals::first() const noexcept { return first_signal; }

std::string signal_name(int signal) {
  switch (signal) {
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGINT:
      return "SIGINT";
    default:
      return fmt::format("signal {}", signal);
  }
}

}  // namespace tutti
