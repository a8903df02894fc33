#pragma once
// Data sets as one block of bytes without addresses, so that it can lie anywhere in memory. A block belongs to the
// process that made it and those started with it; it is no file format. All items begin at multiples of 8 bytes:
//   u64 number of notes, then each as a text; u64 number of sets, 1 or 2 (training, test), then for each set
//     text name, array i64 extents of an image, i64 classes, u64 number of class names, then each as a text
//     u64 1 where there are labels, else 0; u64 number of images left out, then of each i64 the sample that follows, a
//     text: its name, a text: the reason
//     u64 1 where the contents of image files are known, then u64 how many are sampled, u64 digest of these, u64 1
//     where that of all files is known, u64 that
//     array f64 mean, array f64 deviation, array i32 labels, u64 digest
//     u64 where the pixels are, then
//       0  array u8: N x C x H x W pixels
//       1  text: folder, array i8: letters of the file names, array u64: where each name ends
//       2  text: path of a data file, text: name of its array, u64: its digest with its labels, array i64: the row of
//          each sample, array i32: checksums of these rows
//   a text is an array of its bytes; an array is its u64 length and its elements, padded to 8 bytes

#include "tutti/data/dataset.hpp"
#include "tutti/data/open_data.hpp"
#include "tutti/storage/array_file.hpp"

#include "loaded_set.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct LoadedPair {
  LoadedSet train;
  std::optional<LoadedSet> test;
  std::vector<std::string> notes;
};

// Sets go away as they are written, so that pixels are in memory twice for one set at most.
std::vector<std::byte> write_block(LoadedPair pair);
DataPair read_block(std::span<const std::byte> block);

// A data set whose images stay in a data file (tutti/data/data_file.hpp) and are read when they are asked for.

// Where the images are: which array of which file, its digest as told there, and its row for every sample and
// that row's checksum. Borrowed.
struct StoredRows {
  std::string path;
  std::string array;
  std::uint64_t digest = 0;
  std::span<const std::int64_t> rows;
  std::span<const std::int32_t> checksums;  // empty in a file of an early version, whose rows are not verified
};

class StoredSet : public Dataset {
 public:
  // `labels` are borrowed, too. Throws io and input errors of a file that is not what it was.
  StoredSet(DatasetInfo info, StoredRows stored, std::span<const std::int32_t> labels, std::uint64_t digest);

  const DatasetInfo& info() const override { return info_; }
  void read(std::span<const std::int64_t> samples, SampleBatch& batch) const override;
  std::size_t resident_bytes() const override { return 0; }
  std::uint64_t digest() const override { return digest_; }

 private:
  // Throws an input error unless the image that was read for the sample has its checksum.
  void verify(std::size_t sample, std::span<const std::uint8_t> image) const;

  DatasetInfo info_;
  StoredRows stored_;
  std::span<const std::int32_t> labels_;
  std::uint64_t digest_;
  ArrayFile file_;
};

// Data files (tutti/data/data_file.hpp) as a source of data sets.

// Both sets of the file: their pixels, compared with their digests, or where they are when there are more than
// request.most_resident_bytes of them (0: never); then they are compared with their digests now only as the request's
// verification asks for. The structure of the file is compared with its seal in any case.
LoadedPair read_data_file(const std::string& path, const DataRequest& request);

}  // namespace tutti
