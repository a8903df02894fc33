#include "tutti/base/log.hpp"

#include "tutti/base/process.hpp"
#include "tutti/base/text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace tutti {

void write_stderr_line(std::string_view line) noexcept {
  try {
    const std::string whole = printable(line, "\n\t") + "\n";
    write_all(STDERR_FILENO, std::as_bytes(std::span(whole)));
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
