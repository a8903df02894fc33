#pragma once
// Lines for people on stderr, each prefixed with the rank and host that writes it. Results go to stdout elsewhere.
// A Log is a small value that owns nothing.

#include "tutti/base/timing.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace tutti {

class Log {
 public:
  Log() = default;
  Log(int rank, std::string host, bool quiet) : rank_(rank), host_(std::move(host)), quiet_(quiet) {}

  // Writes on rank 0 only, and not with --quiet.
  void info(std::string_view text) const;
  // Writes on any rank, always.
  void warn(std::string_view text) const;

  int rank() const noexcept { return rank_; }

 private:
  int rank_ = 0;
  std::string host_ = "localhost";
  bool quiet_ = false;
};

// Writes one whole line to stderr in a single call, so that lines of several ranks do not mix.
void write_stderr_line(std::string_view line) noexcept;

// A progress line on stderr that is redrawn in place, at most ten times a second.
class TerminalLine {
 public:
  TerminalLine() = default;
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  ~TerminalLine() { clear(); }

  // Calls `text` only if the line is drawn.
  void draw(const std::function<std::string()>& text);
  // Erases the line, so that something else can be printed in its place.
  void clear() noexcept;

 private:
  Stopwatch since_drawn_;
  bool visible_ = false;
};

}  // namespace tutti
