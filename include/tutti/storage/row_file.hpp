#pragma once
// An HDF5 file with arrays too large for memory: written row by row, whole or not at all, and sealed. HDF5 is known to
// crash on files that lie about their structure, so the seal is checked before HDF5 opens the file. It follows HDF5's
// own bytes, where other programs pass it by; all numbers are 64 bits, little endian:
//   offset and length of each run of bytes that holds rows, ascending
//   number of runs, length of the file before the seal, digest, the letters "tuttisea"
// The digest is digest("file", the bytes before the seal that lie in no run) + digest("runs", offsets and lengths).
// What a good seal promises: HDF5 finds every structure, small array and text as it was written, in a file of its full
// length. Rows are not covered, so that a large file opens at once: keep a digest of theirs in the file. Nor does a
// digest of 64 bits stop somebody who forges one.

#include "tutti/base/shape.hpp"
#include "tutti/storage/array_file.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace tutti {

// All functions throw save errors that name the file.
class RowFileWriter {
 public:
  explicit RowFileWriter(const std::string& path);
  // Leaves nothing behind unless keep() has returned.
  ~RowFileWriter();
  RowFileWriter(const RowFileWriter&) = delete;
  RowFileWriter& operator=(const RowFileWriter&) = delete;

  // As ArrayImage's.
  void add(const std::string& name, const Shape& shape, std::span<const double> values);
  void add(const std::string& name, const Shape& shape, std::span<const std::int32_t> values);
  void add_text(const std::string& name, const std::string& text);

  // Begins an array of bytes of this shape, stored in chunks of whole rows; whole rows follow until it is full. Memory
  // is bounded by one chunk of some MiB, or of one row.
  void begin_rows(const std::string& name, const Shape& shape);
  void append_rows(std::span<const std::uint8_t> rows);

  void keep();

 private:
  class File;
  std::unique_ptr<File> file_;
};

// Puts such a seal behind an image of named arrays. Its arrays of f32 are left out as rows are.
void add_seal(StoredImage& image);

// Throws an input error that names the file and says what is wrong with its seal, or an io error.
void check_seal(const std::string& path);

}  // namespace tutti
