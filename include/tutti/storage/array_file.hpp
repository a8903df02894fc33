#pragma once
// Named arrays and strings in one HDF5 file, written in memory or row by row on the disk. Datasets are uncompressed.
// All functions are thread-safe: a mutex serializes the calls to HDF5, which may be built without thread safety.
//
// HDF5 can crash on a file with corrupt metadata, so every file ends with a seal (storage/seal.hpp), which is to be
// checked before HDF5 opens the file. Rows and f32 arrays are not covered by it; store their digests in the file.

#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// The interface shared by both kinds of new files. Equal content gives equal bytes.
class ArrayWriter {
 public:
  ArrayWriter(const ArrayWriter&) = delete;
  ArrayWriter& operator=(const ArrayWriter&) = delete;

  // `name` is a path such as "/parameters/conv1/weight"; missing groups are created. Copies `values`, a range of float,
  // double, std::uint8_t, std::int32_t or std::int64_t.
  template <std::ranges::contiguous_range Values>
  void add(const std::string& name, const Shape& shape, const Values& values) {
    add_values(name, shape, std::span<const std::ranges::range_value_t<Values>>(values));
  }
  // `text` must not contain zero bytes.
  void add_text(const std::string& name, const std::string& text);

 protected:
  ArrayWriter();
  ~ArrayWriter();

  struct File;

  std::unique_ptr<File> file_;

 private:
  template <class T>
  void add_values(const std::string& name, const Shape& shape, std::span<const T> values);
};

// Builds a file in memory: HDF5 never touches the disk. write_atomically (storage/atomic_file.hpp) saves it.
class MemoryFileWriter final : public ArrayWriter {
 public:
  // Reuses the memory of `buffer`, for example of an earlier file, and ignores its contents.
  explicit MemoryFileWriter(std::vector<std::byte> buffer = {});

  // The file's bytes, including the seal. Nothing can be added afterwards.
  std::vector<std::byte> finish();
};

// Writes a file with arrays too large for memory, atomically: no file is left unless commit() has returned. All
// functions throw save errors that name the file.
class RowFileWriter final : public ArrayWriter {
 public:
  explicit RowFileWriter(const std::string& path);

  // Begins a u8 array of this shape, stored in chunks of whole rows. append_rows() must then supply all its rows, in
  // any number of calls. Memory use is bounded by one chunk: a few MiB, or one row if that is larger.
  void begin_rows(const std::string& name, const Shape& shape);
  void append_rows(std::span<const std::uint8_t> rows);

  void commit();
};

// Makes an HDF5 file of a file of raw bytes without copying them: the bytes become u8 arrays where they are. Until then
// they can be appended by several processes, one after another. All functions throw save errors that name the file.
class RawFileWriter final : public ArrayWriter {
 public:
  // The bytes of the first array begin here, and the length of each array is a multiple of it.
  static constexpr std::int64_t kAlignment = std::int64_t{1} << 16;
  struct Array {
    std::string name;
    std::int64_t bytes = 0;
  };
  // Overwrites the first kAlignment bytes of the file at `path`, and all that follows the arrays. If the process ends
  // before commit(), the arrays are still there.
  RawFileWriter(const std::string& path, std::span<const Array> arrays);

  // Gives the finished file this name.
  void commit(const std::string& target);
};

// A file opened read-only and without file locks. All read functions check name, element type and shape, and throw an
// input error that names the file and the array.
class ArrayFile {
 public:
  explicit ArrayFile(const std::string& path);
  // Opens a file in memory, whose bytes are borrowed. `origin` names it in errors.
  ArrayFile(std::span<const std::byte> contents, const std::string& origin);

  const std::string& path() const;
  std::int64_t bytes() const;  // of the whole file
  bool contains(const std::string& name) const;
  // Full names of all arrays below `group`, sorted. Empty if the group does not exist.
  std::vector<std::string> names(const std::string& group) const;
  Shape shape(const std::string& name) const;

  // Fills `values`, a range of any type that ArrayWriter::add accepts.
  template <std::ranges::contiguous_range Values>
  void read(const std::string& name, const Shape& expected, Values&& values) const {
    read_values(name, expected, std::span<std::ranges::range_value_t<Values>>(values));
  }
  // Reads rows first .. first + count - 1 (slices along the first dimension) of an uncompressed array.
  void read_rows(const std::string& name, std::int64_t first, std::int64_t count, std::span<std::uint8_t> values) const;
  std::string read_text(const std::string& name) const;
  // The position in the file of a u8 array that is stored in one piece.
  std::int64_t offset(const std::string& name) const;

 private:
  template <class T>
  void read_values(const std::string& name, const Shape& expected, std::span<T> values) const;

  struct File;
  std::shared_ptr<File> file_;  // copies read the same open file
};

// The HDF5 library's version.
std::string array_library_version();

}  // namespace tutti
