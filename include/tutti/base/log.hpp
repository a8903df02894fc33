#pragma once
// Lines for people on stderr, each prefixed with the rank and host that speaks. Results go to stdout elsewhere.
// A Log is a small value; it owns nothing and is passed to whoever may speak.

#include <string>
#include <string_view>

namespace tutti {

class Log {
 public:
  Log() = default;
  Log(int rank, std::string host, bool quiet) : rank_(rank), host_(std::move(host)), quiet_(quiet) {}

  // Rank 0 only, and not when the user asked for quiet.
  void note(std::string_view text) const;
  // Any rank, always.
  void warn(std::string_view text) const;

  int rank() const noexcept { return rank_; }
  bool quiet() const noexcept { return quiet_; }

 private:
  int rank_ = 0;
  std::string host_ = "localhost";
  bool quiet_ = false;
};

// Writes one whole line to stderr in a single call, so that lines of several ranks do not mix.
void write_stderr_line(std::string_view line) noexcept;

}  // namespace tutti
