#include "keys.hpp"

#include "tutti/base/signals.hpp"
#include "tutti/comm/world.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>

namespace tutti {
namespace {

// Input that takes longer to come was not lying ready: somebody sits there.
constexpr int kMillisecondsBetweenSigns = 1000;

bool has_terminal() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

std::atomic<bool> interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);

// While one of these lives, SIGINT ends the wait and not the process. A handler may run here, unlike beside training
// (see StopSignals): at a prompt no kernel is at work. Where a launcher started the ranks, the watch has taken the
// signal already, and this changes nothing.
class NotedInterrupt {
 public:
  NotedInterrupt() {
    if (is_ignored(SIGINT)) return;
    interrupted = false;
    struct sigaction noting {};
    noting.sa_handler = [](int) { interrupted = true; };
    sigemptyset(&noting.sa_mask);
    is_set_ = ::sigaction(SIGINT, &noting, &before_) == 0;
  }
  ~NotedInterrupt() {
    if (is_set_) ::sigaction(SIGINT, &before_, nullptr);
  }
  NotedInterrupt(const NotedInterrupt&) = delete;
  NotedInterrupt& operator=(const NotedInterrupt&) = delete;

 private:
  struct sigaction before_ {};
  bool is_set_ = false;
};

}  // namespace

Keys::Keys(bool wanted, Whereabouts& whereabouts)
    : asks_(wanted && (started_by_launcher() || has_terminal())),
      is_somebody_there_(has_terminal()),
      whereabouts_(whereabouts) {}

bool Keys::go_on() {
  const NotedInterrupt interrupt;
  fmt::print("Enter goes on, q ends.");
  std::fflush(stdout);
  const Input input = read_line();
  fmt::print("\n");
  std::fflush(stdout);
  if (input == Input::line) return true;
  asks_ = false;
  // A launcher passes its terminal on as a pipe, and closes it at Ctrl-C: that is told from a job without a keyboard
  // by whether anything had to be waited for.
  return input == Input::end && !is_somebody_there_;
}

Keys::Input Keys::read_line() {
  bool quits = false;
  for (bool is_first = true;; is_first = false) {
    char key = 0;
    int ready = 0;
    while (ready == 0) {
      whereabouts_.sign();
      pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
      ready = ::poll(&input, 1, kMillisecondsBetweenSigns);
      if (interrupted) return Input::interrupt;
      if (ready == 0) is_somebody_there_ = true;
      if (ready < 0 && errno == EINTR) ready = 0;
    }
    if (ready < 0 || ::read(STDIN_FILENO, &key, 1) <= 0) return Input::end;
    if (key == '\n' && interrupted) return Input::interrupt;
    if (key == '\n') return quits ? Input::quit : Input::line;
    if (is_first) quits = key == 'q' || key == 'Q';
  }
}

}  // namespace tutti
