#pragma once
// Named arrays and texts in one HDF5 file, written in memory or row by row on the disk. Datasets are uncompressed. Any
// thread may call: all calls to HDF5 take turns, since it may be built without thread safety.
//
// HDF5 is known to crash on files that lie about their structure, so every file ends with a seal, which is checked
// before HDF5 opens the file. It follows HDF5's own bytes, where other programs ignore it; all numbers are 64 bits,
// little endian:
//   offset and length of each run of bytes that the seal does not cover, ascending
//   number of runs, length of the file before the seal, digest, the letters "tuttisea"
// The digest is digest("file", the bytes before the seal that lie in no run) + digest("runs", offsets and lengths).
// A good seal promises that HDF5 finds every structure, small array and text as it was written, in a file of its full
// length. Rows and arrays of f32 are not covered, so that a large file opens at once: keep digests of them in the file.
// A digest of 64 bits does not stop somebody who forges one.

#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// What is added to both kinds of new files. Equal content makes equal bytes.
class ArrayWriter {
 public:
  ArrayWriter(const ArrayWriter&) = delete;
  ArrayWriter& operator=(const ArrayWriter&) = delete;

  // `name` is a path such as "/parameters/conv1/weight"; groups on the way are made. `values` are a range of float,
  // double, std::uint8_t, std::int32_t or std::int64_t, which are copied.
  template <std::ranges::contiguous_range Values>
  void add(const std::string& name, const Shape& shape, const Values& values) {
    add_values(name, shape, std::span<const std::ranges::range_value_t<Values>>(values));
  }
  // Without zero bytes.
  void add_text(const std::string& name, const std::string& text);

 protected:
  class File;
  explicit ArrayWriter(std::unique_ptr<File> file);
  ~ArrayWriter();

  std::unique_ptr<File> file_;

 private:
  template <class T>
  void add_values(const std::string& name, const Shape& shape, std::span<const T> values);
};

// A file in memory, so that HDF5 never touches the disk; `write_whole` (storage/whole_file.hpp) puts it there.
class ArrayImage final : public ArrayWriter {
 public:
  // Built in `room`, where that is large enough: the bytes of an earlier image that is no longer needed.
  explicit ArrayImage(std::vector<std::byte> room = {});

  // The file's bytes with their seal. Nothing can be added afterwards.
  std::vector<std::byte> finish();
};

// A file with arrays too large for memory, which appears whole or not at all. All functions throw save errors that name
// the file. Leaves nothing behind unless keep() has returned.
class RowFileWriter final : public ArrayWriter {
 public:
  explicit RowFileWriter(const std::string& path);

  // Begins an array of bytes of this shape, stored in chunks of whole rows; whole rows follow until it is full. Memory
  // is bounded by one chunk of some MiB, or of one row.
  void begin_rows(const std::string& name, const Shape& shape);
  void append_rows(std::span<const std::uint8_t> rows);

  void keep();
};

// Throws an input error that names the file and says what is wrong with its seal, or an io error.
void check_seal(const std::string& path);

// A file opened read-only and without file locks. Every reader checks name, element type and shape, and throws an input
// error that names the file and the array.
class ArrayFile {
 public:
  explicit ArrayFile(const std::string& path);
  // The same for a file in memory. Borrows the image. `origin` names it in errors.
  ArrayFile(std::span<const std::byte> image, const std::string& origin);
  ~ArrayFile();
  ArrayFile(ArrayFile&&) noexcept;
  ArrayFile& operator=(ArrayFile&&) noexcept;

  const std::string& path() const;
  std::int64_t bytes() const;  // of the whole file
  bool contains(const std::string& name) const;
  // Full names of all arrays below `group`, sorted; none when there is no such group.
  std::vector<std::string> names(const std::string& group) const;
  Shape shape(const std::string& name) const;

  // Fills `values`, a range of the types that can be added.
  template <std::ranges::contiguous_range Values>
  void read(const std::string& name, const Shape& expected, Values&& values) const {
    read_values(name, expected, std::span<std::ranges::range_value_t<Values>>(values));
  }
  // Rows first .. first + count - 1 of an uncompressed array, which are its slices along the first extent.
  void read_rows(const std::string& name, std::int64_t first, std::int64_t count, std::span<std::uint8_t> values) const;
  std::string read_text(const std::string& name) const;

 private:
  template <class T>
  void read_values(const std::string& name, const Shape& expected, std::span<T> values) const;

  struct File;
  std::unique_ptr<File> file_;
};

// The HDF5 library's version.
std::string array_library_version();

}  // namespace tutti
