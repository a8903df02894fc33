#pragma once
// A data set in one HDF5 file, sealed as described in storage/array_file.hpp. docs/formats.md describes its arrays.
// Damaged files and files of other formats are refused with an error that names the file.

#include "tutti/data/open_data.hpp"

#include <cstddef>
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

// A data set of encoded images: the bytes of image files in one HDF5 file, or in several, and an index.

struct EncodedOptions {
  // Larger images are resized so that their short or long side has this many pixels, and encoded again in their format;
  // 0: none. At most one of both.
  std::int64_t short_side = 0;
  std::int64_t long_side = 0;
  int quality = 90;              // of JPEG files that are encoded again, 1 to 100
  std::int64_t shard_bytes = 0;  // of image files in one HDF5 file, at most; 0: any number
  int threads = 1;
  // The work that the end of the process can lose, besides that of 5 seconds.
  std::int64_t checkpoint_bytes = std::int64_t{256} << 20;
  // Called once with the number of images that an earlier process has converted, and of all; 0: not known.
  std::function<void(std::int64_t, std::int64_t)> at_start = [](std::int64_t, std::int64_t) {};
  // Called in the calling thread with the number of images converted or left out since the last call. If it throws, the
  // work done so far is kept.
  std::function<void(std::int64_t)> after_samples = [](std::int64_t) {};
};

struct EncodedReport {
  std::int64_t train_samples = 0;
  std::int64_t test_samples = 0;
  std::int64_t files = 1;  // HDF5 files
  std::int64_t bytes = 0;  // of all of them
  std::int64_t encoded_again = 0;
  std::int64_t skipped = 0;
  std::string first_problem;  // of the images skipped
  std::vector<std::string> notes;
};

// Reads each image file of the request's sets once, and decodes it. Besides the sources of open_data(), these can be
// tar archives (image_tars.hpp). The work is kept in the folder `path`.partial, where the next call with the same
// request and options goes on; the file's bytes do not depend on that. Throws as write_data_file does.
EncodedReport write_encoded_file(const DataRequest& request, const std::string& path, const EncodedOptions& options);

}  // namespace tutti
