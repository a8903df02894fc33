#include "stop_signals.hpp"

#include "tutti/base/signals.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <ctime>
#include <utility>

namespace tutti {
namespace {

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

// That cannot fail for sets of valid signals.
void block_stop_signals() noexcept {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void unblock_stop_signals() noexcept {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

StopSignals::StopSignals(std::function<void(int)> on_first) : awaited_(stop_signals()), on_first_(std::move(on_first)) {
  block_stop_signals();
  std::signal(SIGPIPE, SIG_IGN);
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
    if (first_.compare_exchange_strong(none, signal) && on_first_) on_first_(signal);
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
    case SIGHUP:
      return "SIGHUP";
    case SIGPIPE:
      return "a stdout that nobody reads any more";
    default:
      return fmt::format("signal {}", signal);
  }
}

}  // namespace tutti
