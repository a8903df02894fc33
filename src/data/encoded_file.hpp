#pragma once
// The data file of encoded images, which docs/formats.md describes: how it is laid out, and how its images are read.

#include "tutti/data/dataset.hpp"

#include "lazy_datasets.hpp"
#include "sources.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

inline constexpr const char* kEncodedFormat = "tutti encoded data set 1";
inline constexpr const char* kEncodedShardFormat = "tutti shard of an encoded data set 1";
inline constexpr std::array<const char*, 2> kSetGroups{"/train", "/test"};
// Of the arrays SET/shapes: channels, height and width as stored, and EXIF orientation.
inline constexpr std::int64_t kShapeNumbers = 4;

// The other HDF5 files of the set in "set.h5" are "set-00001.h5" and so on.
std::string shard_path(const std::string& path, std::int64_t shard);

// EncodedFiles in a block.
struct PackedEncodedFiles {
  std::vector<EncodedShard> shards;
  bool applies_exif = true;
  std::span<const std::int64_t> begins;
  std::span<const std::int32_t> bytes;
  std::span<const std::int32_t> checksums;
};
// Throws an io error, or an input error if one of the HDF5 files has changed since it was listed.
std::unique_ptr<Dataset> make_encoded_files(LazySet set, PackedEncodedFiles files);

}  // namespace tutti
