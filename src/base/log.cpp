#include "tutti/base/log.hpp"

#include "tutti/base/text.hpp"
#include "tutti/base/unique_handle.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tutti {

void write_stderr_line(std::string_view line) noexcept {
  try {
    const std::string whole = printable(line, "\n\t") + "\n";
    std::string_view rest = whole;
    while (!rest.empty()) {
      const ssize_t written = retry_on_eintr([&] { return ::write(STDERR_FILENO, rest.data(), rest.size()); });
      if (written <= 0) return;
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  } catch (...) {
    // Nothing is left to report to.
  }
}

void Log::info(std::string_view text) const {
  if (rank_ == 0 && !quiet_) write_stderr_line(fmt::format("[rank {} {}] {}", rank_, host_, text));
}

void Log::warn(std::string_view text) const {
  write_stderr_line(fmt::format("[rank {} {}] warning: {}", rank_, host_, text));
}

void TerminalLine::draw(const std::function<std::string()>& text) {
  constexpr double kSecondsBetweenDrawings = 0.1;
  if (visible_ && since_drawn_.seconds() < kSecondsBetweenDrawings) return;
  since_drawn_.restart();
  visible_ = true;
  // Errors are ignored, since the terminal may be gone.
  static_cast<void>(std::fputs(("\r\x1b[K" + text()).c_str(), stderr));
  static_cast<void>(std::fflush(stderr));
}

void TerminalLine::clear() noexcept {
  if (!visible_) return;
  visible_ = false;
  static_cast<void>(std::fputs("\r\x1b[K", stderr));
  static_cast<void>(std::fflush(stderr));
}

}  // namespace tutti
