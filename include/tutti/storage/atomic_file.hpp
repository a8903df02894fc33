#pragma once
// Output files: one that is written atomically, and a log that grows by whole lines. Symbolic links are followed and
// preserved. To a device or a pipe, bytes are written directly. All failures throw a save error with the path, the
// system's error text and a remedy.

#include "tutti/base/error.hpp"
#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// The save error for a full disk or quota. Removing files may help.
class DiskFull : public Error {
 public:
  explicit DiskFull(const std::string& message) : Error(ErrorSource::save, message) {}
};

// Separates the name of a file from that of its writer in the file's temporary name.
inline constexpr std::string_view kTemporaryMark = ".tmp.";

// A file that appears complete or not at all. It is written under a temporary name in the same folder, flushed,
// optionally read back, and renamed by commit(), which also flushes the folder. Until then an existing file of that
// name is untouched. Without commit() the destructor removes the temporary file.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  // Empty after commit(), and for a device or a pipe.
  const std::string& temporary() const { return temporary_; }
  // Appends at the current end of the file.
  void append(std::span<const std::byte> bytes);
  // Flushes the file, reads it back and throws unless it holds these bytes. The system may answer from its page cache.
  void verify(std::span<const std::byte> bytes);
  void commit();

 private:
  void flush();

  std::string path_;
  std::string target_;     // the path with symbolic links resolved
  std::string temporary_;  // empty for a device or a pipe
  Descriptor descriptor_;
  bool flushed_ = false;
};

// The file that a path refers to, or would, through symbolic links.
std::string resolve_links(std::string path);

void write_atomically(const std::string& path, std::span<const std::byte> bytes);

// Renames a file in the same file system, sets `temporary` to "", and flushes the folder. Never replaces anything but a
// regular file.
void rename_durably(std::string& temporary, const std::string& path);

// Throws a save error with the path, the failed action, the system's error text and a remedy.
[[noreturn]] void fail_saving(const std::string& path, std::string_view action, int error);

// Whether there is a file of any kind, a plain file, or a folder. One that this user may not see is not there.
bool file_exists(const std::string& path);
bool is_plain_file(const std::string& path);
bool is_folder(const std::string& path);

// All bytes of a file. Throws an io error with path and errno text.
std::vector<std::byte> read_file_bytes(const std::string& path);
std::string read_file_text(const std::string& path);

enum class EarlierLines { kept, dropped };

// A log file. Each line is passed to the system at once, so a killed process loses none of its lines. If the last line
// is incomplete because of a kill or a full disk, a line break is written before the next line.
class LineFile {
 public:
  explicit LineFile(const std::string& path, EarlierLines earlier = EarlierLines::kept);
  // May be called again after an error.
  void append(const std::string& line);

 private:
  std::string path_;
  Descriptor descriptor_;
  bool has_partial_line_ = false;
};

}  // namespace tutti
