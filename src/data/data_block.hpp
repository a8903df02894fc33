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

#include "tutti/data/open_data.hpp"

#include "loaded_set.hpp"

#include <cstddef>
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

}  // namespace tutti
