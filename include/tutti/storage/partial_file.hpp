#pragma once
// A file that arrives in pieces, perhaps over several calls of the program: what there is of it waits as PATH.part
// beside its place, and takes that place when all is there and right. One process at a time works on it.

#include "tutti/base/descriptor.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

class PartialFile {
 public:
  // Goes on with what an earlier process has left. Throws save errors, also where another process is at work on it.
  explicit PartialFile(const std::string& path);
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  // What there is stays; an empty file goes.
  ~PartialFile();

  const std::string& temporary() const { return temporary_; }
  std::int64_t bytes() const { return bytes_; }
  void append(std::span<const std::byte> bytes);
  // Takes back all there is.
  void clear();
  // Flushes it to the disk and gives it its name. Nothing can be appended afterwards.
  void keep();

 private:
  std::string path_;
  std::string temporary_;
  Descriptor descriptor_;
  std::int64_t bytes_ = 0;
};

}  // namespace tutti
