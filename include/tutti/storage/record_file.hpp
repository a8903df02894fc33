#pragma once
// A log of binary records that grows, each of which tells its length and vouches for itself, as TensorFlow's record
// files do. Of each, little-endian:
//   u64     bytes of the record
//   u32     the masked CRC-32C of these eight bytes
//   bytes   the record
//   u32     the masked CRC-32C of the record
// where masked is (crc >> 15 | crc << 17) + 0xA282EAD8, since records may hold checksums of their own.

#include "tutti/base/descriptor.hpp"

#include <string>
#include <string_view>

namespace tutti {

class RecordFile {
 public:
  // Makes a new file. Throws a save error that names the path and the remedy, also when there is one of that name.
  explicit RecordFile(const std::string& path);
  // Hands the record to the system whole. Throws likewise; what was written of it is taken back then, and the next one
  // may be written all the same.
  void append(std::string_view record);

 private:
  std::string path_;
  Descriptor descriptor_;
};

}  // namespace tutti
