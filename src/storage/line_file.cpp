#include "tutti/storage/line_file.hpp"

#include "tutti/base/uninterrupted.hpp"

#include "saving.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {
namespace {

// Only of files, and of those that this user may read: pipes and terminals have no last line.
bool ends_within_a_line(const std::string& path, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0) return false;
  const Descriptor reader(uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  char last = '\n';
  const ssize_t got = uninterrupted([&] { return ::pread(reader.get(), &last, 1, status.st_size - 1); });
  return got == 1 && last != '\n';
}

}  // namespace

LineFile::LineFile(const std::string& path)
    : path_(path),
      descriptor_(
          uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666); })) {
  if (!descriptor_) fail_saving(path_, "opening", errno);
  torn_ = ends_within_a_line(path_, descriptor_.get());
}

void LineFile::append(const std::string& line) {
  const std::string whole = (torn_ ? "\n" : "") + line + "\n";
  const std::size_t left = write_all(descriptor_.get(), std::as_bytes(std::span(whole))).size();
  const int error = errno;
  if (left < whole.size()) torn_ = whole[whole.size() - left - 1] != '\n';
  if (left > 0) fail_saving(path_, "writing", error);
}

}  // namespace tutti
