#pragma once
// A data set in one HDF5 file, sealed as described in storage/array_file.hpp. docs/formats.md describes its arrays.
// Damaged files and files of other formats are refused with an error that names the file.

#include "tutti/data/open_data.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace tutti {

struct DataFileOptions {
  // The short side of the images is resized to image_size, and the center of the long side is kept; 0: the images must
  // all have the same size, or a usage error is thrown.
  std::int64_t image_size = 0;
  int threads = 1;  // read, decode and fit images; the file's bytes do not depend on their number
  // Called in the calling thread with the number of samples written since the last call.
  std::function<void(std::int64_t)> after_samples = [](std::int64_t) {};
};

// Writes both sets with bounded memory; the file appears completely or not at all. Throws save errors, and the error of
// the first bad image in the order of the set.
void write_data_file(const DataPair& data, const std::string& path, const DataFileOptions& options = {});

}  // namespace tutti
