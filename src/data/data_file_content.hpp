#pragma once
// What data files of pixels and of encoded images have in common.

#include "tutti/data/dataset.hpp"
#include "tutti/storage/array_file.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

// Throws an input error for a class name that the file cannot hold; `of` has the class.
void refuse_broken_name(const std::string& name, const std::string& of);
void refuse_broken_names(const DatasetInfo& info);
// Throws a save error if the disk of the file cannot hold so many bytes.
void refuse_scarce_disk(const std::string& path, std::int64_t bytes, const char* remedy);
// Writes name and classes.
void write_description(ArrayWriter& file, const DatasetInfo& info);

// Reads a data file whose seal is valid. Throws input errors.
class DataFileContent {
 public:
  DataFileContent(const std::string& path, const char* format);

 protected:
  [[noreturn]] void refuse(const std::string& reason) const;
  // The names in an array of bytes, each of which ends with a zero byte.
  std::vector<std::string> read_names(const std::string& array, std::int64_t samples) const;
  // The length of an array of one dimension.
  std::int64_t length_of(const std::string& array) const;
  void read_statistics(std::int64_t channels);

  template <class T>
  std::vector<T> read_all(const std::string& name, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    file_.read(name, Shape{count}, values);
    return values;
  }

  ArrayFile file_;
  std::int64_t bytes_;
  DatasetInfo info_;
};

}  // namespace tutti
