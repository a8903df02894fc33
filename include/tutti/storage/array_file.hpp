#pragma once
// Named arrays and texts in one HDF5 file. Writing builds the whole image in memory, so HDF5 never touches
// the disk while saving; `write_whole` (storage/whole_file.hpp) puts it there. Datasets are contiguous and
// uncompressed. Any thread may call: all calls to HDF5 take turns, since it may be built without thread safety.

#include "tutti/base/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct ByteRun {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct StoredImage {
  std::vector<std::byte> bytes;  // the finished file, byte for byte
  std::vector<ByteRun> floats;   // where the values of the f32 arrays are
};

class ArrayImage {
 public:
  // Built in `room`, where that is large enough: the bytes of an earlier image, of no more use.
  explicit ArrayImage(std::vector<std::byte> room = {});
  ~ArrayImage();
  ArrayImage(ArrayImage&&) noexcept;
  ArrayImage& operator=(ArrayImage&&) noexcept;

  // `name` is a path such as "/parameters/conv1/weight"; groups on the way are made. The data are copied.
  void add(const std::string& name, const Shape& shape, std::span<const float> values);
  void add(const std::string& name, const Shape& shape, std::span<const double> values);
  void add(const std::string& name, const Shape& shape, std::span<const std::uint8_t> values);
  void add(const std::string& name, const Shape& shape, std::span<const std::int32_t> values);
  void add(const std::string& name, const Shape& shape, std::span<const std::int64_t> values);
  // Without zero bytes.
  void add_text(const std::string& name, const std::string& text);

  // Nothing can be added afterwards.
  StoredImage finish();

 private:
  class File;
  std::unique_ptr<File> file_;
};

// A file opened read-only and without file locks. Every reader checks name, element type and shape, and
// throws an input error that names the file and the array. HDF5 can crash on a damaged file: prove the bytes first.
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

  void read(const std::string& name, const Shape& expected, std::span<float> values) const;
  void read(const std::string& name, const Shape& expected, std::span<double> values) const;
  void read(const std::string& name, const Shape& expected, std::span<std::uint8_t> values) const;
  void read(const std::string& name, const Shape& expected, std::span<std::int32_t> values) const;
  void read(const std::string& name, const Shape& expected, std::span<std::int64_t> values) const;
  // Rows first .. first + count - 1 of an uncompressed array, which are its slices along the first extent.
  void read_rows(const std::string& name, std::int64_t first, std::int64_t count, std::span<std::uint8_t> values) const;
  std::string read_text(const std::string& name) const;

 private:
  class File;
  std::unique_ptr<File> file_;
};

// The HDF5 library's version.
std::string array_library_version();

}  // namespace tutti
