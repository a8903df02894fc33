#include "tutti/storage/line_file.hpp"

#include "tutti/base/unique_handle.hpp"

#include "saving.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tutti {
namespace {

// Only of those that this user may read.
bool ends_within_a_line(const std::string& path, int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || status.st_size == 0) return false;
  const Descriptor reader(retry_on_eintr([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  char last = '\n';
  const ssize_t got = retry_on_eintr([&] { return ::pread(reader.get(), &last, 1, status.st_size - 1); });
  return got == 1 && last != '\n';
}

}  // namespace

LineFile::LineFile(const std::string& path, EarlierLines earlier) : path_(path) {
  OutputPlace place = find_output(path);
  descriptor_ = std::move(place.stream);
  if (descriptor_) return;
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (earlier == EarlierLines::dropped ? O_TRUNC : 0);
  descriptor_ = Descriptor(retry_on_eintr([&] { return ::open(place.path.c_str(), flags, 0666); }));
  if (!descriptor_) fail_saving(path_, "opening", errno);
  torn_ = ends_within_a_line(place.path, descriptor_.get());
}

void LineFile::append(const std::string& line) {
  const std::string whole = (torn_ ? "\n" : "") + line + "\n";
  const std::size_t left = write_all(descriptor_.get(), std::as_bytes(std::span(whole))).size();
  const int error = errno;
  if (left < whole.size()) torn_ = whole[whole.size() - left - 1] != '\n';
  if (left > 0) fail_saving(path_, "writing", error);
}

}  // namespace tutti
