#include "tutti/storage/line_file.hpp"

#include "tutti/base/error.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace tutti {

LineFile::LineFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!descriptor_) throw Error(ErrorSource::save, fmt::format("cannot write '{}'", path_));
}

void LineFile::append(const std::string& line) {
  const std::string whole = line + "\n";
  std::string_view rest = whole;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor_.get(), rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw Error(ErrorSource::save, fmt::format("cannot write '{}'", path_));
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace tutti
