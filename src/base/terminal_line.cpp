#include "tutti/base/terminal_line.hpp"

#include <cstdio>

namespace tutti {
namespace {

constexpr double kSecondsBetweenDrawings = 0.1;

}  // namespace

void TerminalLine::draw(const std::function<std::string()>& text) {
  if (visible_ && since_drawn_.seconds() < kSecondsBetweenDrawings) return;
  since_drawn_.restart();
  visible_ = true;
  // The terminal may be gone: a run does not end because nobody watches it.
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
