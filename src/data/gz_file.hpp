#pragma once
// A file read from front to back, gzip-compressed or raw; the first bytes tell which. Knows nothing of what
// it holds.

#include "tutti/base/unique_handle.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <source_location>
#include <span>
#include <string>
#include <vector>

struct gzFile_s;

namespace tutti {

class GzFile {
 public:
  // Throws an io error when the file cannot be opened.
  explicit GzFile(std::filesystem::path path);

  bool is_raw() const noexcept { return is_raw_; }
  // Bytes read so far, after decompression.
  std::int64_t offset() const noexcept { return offset_; }
  // The most bytes that the whole content can have: exact for a raw file, for a compressed one what the best
  // possible compression would give.
  std::int64_t most_bytes() const noexcept { return most_bytes_; }

  // Fills the span; throws an input error when the content ends before.
  void read(std::span<std::uint8_t> bytes);
  // Fills as much of the span as there is left; returns how much.
  std::size_t read_some(std::span<std::uint8_t> bytes);
  // Appends `count` bytes. Memory grows with what really arrives, so that a lying header costs nothing.
  void append(std::vector<std::uint8_t>& bytes, std::int64_t count);
  // Throws an input error when anything is left.
  void expect_end();

  // Throws an input error that names the file, the offset and the reason.
  [[noreturn]] void refuse(std::int64_t offset, const std::string& reason,
                           std::source_location where = std::source_location::current()) const;

 private:
  struct Close {
    void operator()(gzFile_s* file) const noexcept;
  };

  [[noreturn]] void fail() const;

  std::filesystem::path path_;
  UniqueHandle<gzFile_s*, Close> file_;
  bool is_raw_ = false;
  std::int64_t most_bytes_ = 0;
  std::int64_t offset_ = 0;
};

}  // namespace tutti
