#pragma once
// A file that appears whole or not at all: written under a temporary name in the same folder, flushed to the disk, read
// back where that is asked for, renamed, and the folder flushed. Until the rename the old file, if any, is untouched.
// Symbolic links are followed, and stay. What is neither a regular file nor missing, as a device or a pipe, gets the
// bytes as they come.

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The save error of a disk or quota that is full: what is removed there makes room.
class NoRoom : public Error {
 public:
  explicit NoRoom(const std::string& message) : Error(ErrorSource::save, message) {}
};

// A file under its temporary name, empty at first, for writers that need a path; removed again unless it is kept.
// Throws save errors as write_whole does.
class WholeFile {
 public:
  explicit WholeFile(const std::string& path);
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;
  ~WholeFile();

  // Empty when it is kept, and where bytes go to a device or a pipe.
  const std::string& temporary() const { return temporary_; }
  // Behind all that anybody has written so far.
  void append(std::span<const std::byte> bytes);
  // Flushes the file, and throws unless the disk, as far as the system asks it, gives back these bytes.
  void prove(std::span<const std::byte> bytes);
  void keep();

 private:
  void flush();

  std::string path_;
  std::string target_;  // behind symbolic links
  std::string temporary_;
  Descriptor descriptor_;
  bool is_stream_ = false;
  bool flushed_ = false;
};

// Throws a save error with path, errno text and remedy; the temporary file is removed then.
void write_whole(const std::string& path, std::span<const std::byte> bytes);
// Appends these bytes to an empty file and proves them. Returns their SHA-256 as sha256_text does, found in another
// thread while the disk is at work.
std::string append_and_sum(WholeFile& file, std::span<const std::byte> bytes);

// All bytes of a file. Throws an io error with path and errno text.
std::vector<std::byte> read_whole(const std::string& path);

}  // namespace tutti
