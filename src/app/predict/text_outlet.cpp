#include "text_outlet.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/utf8.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <span>

namespace tutti {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

void write_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) return;
  throw Error(ErrorSource::save, fmt::format("cannot write to stdout: {}", std::strerror(errno)));
}

}  // namespace

TextOutlet::TextOutlet(const std::string& path) {
  if (path != kStdout) file_.emplace(path);
}

void TextOutlet::append(std::string_view text) {
  waiting_ += text;
  if (waiting_.size() >= kPieceBytes) hand_over();
}

void TextOutlet::finish() {
  hand_over();
  if (file_) file_->keep();
}

void TextOutlet::hand_over() {
  if (file_) {
    file_->append(std::as_bytes(std::span(waiting_)));
  } else {
    write_stdout(::isatty(STDOUT_FILENO) != 0 ? printable(waiting_, "\n\r\t") : waiting_);
  }
  waiting_.clear();
}

}  // namespace tutti
