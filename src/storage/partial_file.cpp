#include "tutti/storage/partial_file.hpp"

#include "tutti/base/error.hpp"
#include "tutti/base/uninterrupted.hpp"

#include "saving.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tutti {

PartialFile::PartialFile(const std::string& path)
    : path_(path), temporary_(path + ".part"), descriptor_(uninterrupted([&] {
        return ::open(temporary_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
      })) {
  if (!descriptor_) fail_saving(path_, fmt::format("opening '{}'", temporary_), errno);
  // Where the file system knows no locks, nobody is held up.
  if (::flock(descriptor_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    throw Error(ErrorSource::save, fmt::format("cannot save '{}': another process is writing '{}'; wait for it, or "
                                               "choose another folder",
                                               path_, temporary_));
  }
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0) fail_saving(path_, fmt::format("looking at '{}'", temporary_), errno);
  bytes_ = status.st_size;
}

PartialFile::~PartialFile() {
  if (descriptor_ && bytes_ == 0) static_cast<void>(::unlink(temporary_.c_str()));
}

void PartialFile::append(std::span<const std::byte> bytes) {
  const std::span<const std::byte> left = write_all(descriptor_.get(), bytes);
  bytes_ += static_cast<std::int64_t>(bytes.size() - left.size());
  if (!left.empty()) fail_saving(path_, "writing", errno);
}

void PartialFile::clear() {
  if (uninterrupted([&] { return ::ftruncate(descriptor_.get(), 0); }) != 0) fail_saving(path_, "emptying", errno);
  bytes_ = 0;
}

void PartialFile::keep() {
  if (uninterrupted([&] { return ::fsync(descriptor_.get()); }) != 0) fail_saving(path_, "flushing to the disk", errno);
  rename_for_good(temporary_, path_);
  descriptor_.reset();
}

}  // namespace tutti
