#pragma once
// Files for results: one that appears whole or not at all, and a log that grows by whole lines. Symbolic links are
// followed, and stay. What is neither a regular file nor missing, as a device or a pipe, gets the bytes as they come.
// Everything that fails throws a save error with the path, the system's reason and the remedy.

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

// Written under a temporary name in the same folder, flushed to the disk, read back where that is asked for, renamed,
// and the folder flushed. Until the rename the old file, if any, is untouched. Empty at first; removed again unless it
// is kept.
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

void write_whole(const std::string& path, std::span<const std::byte> bytes);

// All bytes of a file. Throws an io error with path and errno text.
std::vector<std::byte> read_whole(const std::string& path);

enum class EarlierLines { kept, dropped };

// A log of lines that grows: each is handed to the system whole, so that a killed process loses none that it has
// written. A last line that was cut short, by a kill or a full disk, is ended before the next one begins.
class LineFile {
 public:
  explicit LineFile(const std::string& path, EarlierLines earlier = EarlierLines::kept);
  // After an error the next line may be written all the same.
  void append(const std::string& line);

 private:
  std::string path_;
  Descriptor descriptor_;
  bool torn_ = false;
};

}  // namespace tutti
