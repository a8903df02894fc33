#pragma once
// The arrays of a file's image in memory, found by a table that was kept with it and never by the file's own
// structures: whatever the bytes are, reading them ends well or in an input error that names the array.

#include "tutti/storage/array_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

class ImageArrays {
 public:
  // Borrows the image. `origin` names it in errors. Throws unless names are unique and every array lies within the
  // image, alone, has the bytes that its type and shape make, and its checksum.
  ImageArrays(std::span<const std::byte> image, std::vector<StoredArray> arrays, std::string origin);

  // As ArrayFile's.
  const std::string& path() const { return origin_; }
  bool contains(const std::string& name) const;
  std::vector<std::string> names(const std::string& group) const;
  Shape shape(const std::string& name) const;
  template <class T>  // of float, double and signed integers of 32 and 64 bits
  void read(const std::string& name, const Shape& expected, std::span<T> values) const;
  std::string read_text(const std::string& name) const;

 private:
  [[noreturn]] void refuse(const std::string& name, const std::string& fault) const;
  const StoredArray& find(const std::string& name) const;

  std::span<const std::byte> image_;
  std::vector<StoredArray> arrays_;  // by name
  std::string origin_;
};

}  // namespace tutti
