#pragma once
// A data set in one HDF5 file, sealed as storage/array_file.hpp says:
//   /format            text "tutti data set 1"
//   /name              text
//   /classes           i32, one: how many classes there are
//   /class_names       text, a name per line; empty where they have no names
//   /mean, /deviation  f64 C: of pixel / 255 over the training set
//   /train/images      u8 N, C, H, W, chunked, not compressed
//   /train/labels      i32 N
//   /train/checksums   i32 N: the CRC-32C of each image, verified whenever it is read; early files have none
//   /train/digest      text, 16 hexadecimal digits: digest("images") + digest("labels")
//   /test/...          likewise, where there is a test set
// Files of that format are for this program; damaged and foreign ones are refused by name.

#include "tutti/data/open_data.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace tutti {

struct DataFileOptions {
  // Images of another size than this squared are fitted to it as a recipe without augmentation does; 0: all have one
  // size already, or a usage error is thrown.
  std::int64_t image_size = 0;
  int threads = 1;  // that read, decode and fit images; the file's bytes do not depend on their number
  // Called in the calling thread with the number of samples written since the last call.
  std::function<void(std::int64_t)> after_samples = [](std::int64_t) {};
};

// Writes both sets in memory that does not grow with them; the file appears whole or not at all. Throws save errors,
// and what reading the first bad image threw, whichever thread met it.
void write_data_file(const DataPair& data, const std::string& path, const DataFileOptions& options = {});

}  // namespace tutti
