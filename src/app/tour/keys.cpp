#include "keys.hpp"

#include "tutti/comm/world.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace tutti {
namespace {

bool may_have_keys() { return started_by_launcher() || (::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1); }

}  // namespace

Keys::Keys(bool wanted, Whereabouts& whereabouts) : waits_(wanted && may_have_keys()), whereabouts_(whereabouts) {}

void Keys::await_enter() {
  constexpr int kMillisecondsBetweenSigns = 1000;
  if (!waits_) return;
  fmt::print("Enter goes on.");
  std::fflush(stdout);
  for (char key = 0; key != '\n';) {
    whereabouts_.sign();
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&input, 1, kMillisecondsBetweenSigns);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    if (ready < 0 || ::read(STDIN_FILENO, &key, 1) <= 0) {
      waits_ = false;
      break;
    }
  }
  fmt::print("\n");
}

}  // namespace tutti
