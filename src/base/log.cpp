#include "tutti/base/log.hpp"

#include "tutti/base/utf8.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

void write_stderr_line(std::string_view line) noexcept {
  try {
    const std::string whole = printable(line, "\n\t") + "\n";
    std::string_view rest = whole;
    while (!rest.empty()) {
      const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return;
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  } catch (...) {
    // Nothing is left to report to.
  }
}

void Log::note(std::string_view text) const {
  if (rank_ == 0 && !quiet_) write_stderr_line(fmt::format("[rank {} {}] {}", rank_, host_, text));
}

void Log::warn(std::string_view text) const {
  write_stderr_line(fmt::format("[rank {} {}] warning: {}", rank_, host_, text));
}

}  // namespace tutti
