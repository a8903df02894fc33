#pragma once
// One line on stderr that is drawn over itself while work goes on, never more than ten times a second.

#include "tutti/base/stopwatch.hpp"

#include <functional>
#include <string>

namespace tutti {

class TerminalLine {
 public:
  TerminalLine() = default;
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  ~TerminalLine() { clear(); }

  // The text is asked for only when it is drawn.
  void draw(const std::function<std::string()>& text);
  // Wipes the line, so that something else can be printed in its place.
  void clear() noexcept;

 private:
  Stopwatch since_drawn_;
  bool visible_ = false;
};

}  // namespace tutti
