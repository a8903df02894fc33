#pragma once
// A log of lines that grows: each is handed to the system whole, so that a killed process loses none that it has
// written. A last line that was cut short, by a kill or a full disk, is ended before the next one begins.

#include "tutti/base/unique_handle.hpp"

#include <string>

namespace tutti {

enum class EarlierLines { kept, dropped };

class LineFile {
 public:
  // Opens for appending; devices and pipes are written to. Both throw save errors that name the path and the remedy;
  // after one, the next line may be written all the same.
  explicit LineFile(const std::string& path, EarlierLines earlier = EarlierLines::kept);
  void append(const std::string& line);

 private:
  std::string path_;
  Descriptor descriptor_;
  bool torn_ = false;
};

}  // namespace tutti
