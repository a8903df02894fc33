#include "stop_signals.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/signals.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <ctime>

namespace tutti {
StopSignals::StopSignals() {
  sigemptyset(&awaited_);
  sigaddset(&awaited_, SIGTERM);
  sigaddset(&awaited_, SIGUSR1);
  if (!is_ignored(SIGINT)) sigaddset(&awaited_, SIGINT);
  if (const int failure = pthread_sigmask(SIG_BLOCK, &awaited_, nullptr); failure != 0) {
    throw Error(ErrorSource::internal, fmt::format("cannot block the signals to stop for: error {}", failure));
  }
  listener_ = std::thread([this] { listen(); });
}

StopSignals::~StopSignals() {
  is_ending_ = true;
  pthread_kill(listener_.native_handle(), SIGTERM);  // it may be waiting
  listener_.join();
  const timespec at_once{};
  while (sigtimedwait(&awaited_, nullptr, &at_once) > 0) continue;  // they came too late to stop anything
}

void StopSignals::listen() {
  int interrupts = 0;
  while (true) {
    int signal = 0;
    if (sigwait(&awaited_, &signal) != 0) continue;  // interrupted
    if (is_ending_) return;
    int none = 0;
    first_.compare_exchange_strong(none, signal);
    come_ |= std::uint64_t{1} << signal;
    if (signal == SIGINT && ++interrupts == 2) end_process_by(SIGINT);
  }
}

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
