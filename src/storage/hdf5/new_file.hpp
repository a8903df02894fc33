#pragma once
// Arrays and texts into a file that HDF5 has just made, on the disk or in memory. Without times, so that equal content
// makes equal bytes.

#include "tutti/base/error.hpp"
#include "tutti/base/shape.hpp"
#include "tutti/storage/array_file.hpp"

#include "element.hpp"
#include "handles.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::hdf5 {

// HDF5 takes files in memory of one name for the same file, so each gets its own.
std::string new_image_name();

class NewFile {
 public:
  explicit NewFile(FileHandle file);

  template <class T>
  void add_values(const std::string& name, const Shape& shape, std::span<const T> values) {
    if (static_cast<std::int64_t>(values.size()) != shape.elements()) {
      throw Error(ErrorSource::internal,
                  fmt::format("'{}' of shape {} is given {} values", name, shape.text(), values.size()));
    }
    add(name, shape, element_of(T{}), values.data());
  }
  void add_text(const std::string& name, const std::string& text);
  // Chunks of whole rows, which are still to be written.
  DatasetHandle add_rows(const std::string& name, const Shape& shape, std::int64_t rows_per_chunk);

  hid_t get() const { return file_.get(); }
  // Where the f32 values are that were added so far.
  const std::vector<ByteRun>& floats() const { return floats_; }
  // Nothing can be added afterwards.
  FileHandle release();

 private:
  DatasetHandle make(const std::string& name, hid_t stored, const Shape& shape, hid_t layout);
  void add(const std::string& name, const Shape& shape, const Element& element, const void* values);

  FileHandle file_;
  PropertiesHandle links_;
  PropertiesHandle layout_;
  std::vector<ByteRun> floats_;
};

}  // namespace tutti::hdf5
