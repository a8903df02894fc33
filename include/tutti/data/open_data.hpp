#pragma once
// From the value of --data to data sets. One process per host loads; the loaded block is plain bytes without
// addresses, so that it can lie in memory shared by all ranks of the host, each of which opens its own sets over it.

#include "tutti/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// How much of the data is read before it is used.
//   start    image headers, as many as tell the shape; a sample of the files for the digest of their contents
//   sample   all image headers, and a sample of the images decoded
//   whole    everything: all images are decoded, data files are compared with their digest
enum class Verification { start, sample, whole };
// Whether data files that are not read into memory are compared with their digest first: those of early versions,
// without checksums, cannot be verified as they are read.
enum class DataFileCheck { none, without_checksums, all };

struct DataRequest {
  // "glyphs", "synthetic:NxCxHxW:classes", a folder (idx files, CIFAR batches, class folders of JPEG and PNG, or a
  // flat folder of images with a label CSV), an HDF5 file, or a bare NAME looked up as ./NAME, ./data/NAME and
  // $TUTTI_DATA/NAME.
  std::string train;
  std::string test;             // likewise for the test set, where it lies apart; else empty
  double validation_ratio = 0;  // above 0: this share of the training set is held out and is the test set
  std::uint64_t seed = 0;       // decides which samples are held out
  bool skip_bad_images = false;
  Verification verification = Verification::start;
  DataFileCheck data_file_check = DataFileCheck::none;
  bool upright = true;                  // JPEG files are turned as their EXIF orientation says
  std::size_t most_resident_bytes = 0;  // an HDF5 set with more stays in its file; 0: none does
  bool unlabelled_too = false;          // a folder of image files without a table will do, as a set without labels
  bool any_test_labels = false;         // the test set may have classes without training samples: nothing is trained
  bool any_class_names = false;       // names that are not UTF-8 are accepted: a run that was trained on them continues
  bool from_checkpoint = false;       // it is a checkpoint that names the data
  std::vector<std::string> images{};  // such files and folders of them, in place of all else but skip_bad_images
};

// Null where there is no test set.
struct DataPair {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;
  std::vector<std::string> notes;  // for the user: skipped images, for one
};

// Reads what is small, lists what is large. Throws input or io errors that name the file, the place in it and
// the reason.
std::vector<std::byte> load_data(const DataRequest& request);
// `block` is borrowed by the sets and aligned to 8 bytes. Throws as load_data does.
DataPair open_loaded(std::span<const std::byte> block);

// Whether holding out this ratio of these samples leaves a training set of that digest.
bool is_left_of(std::uint64_t digest, const Dataset& whole, double validation_ratio, std::uint64_t seed);

// Both at once, for one process: the pair owns its block.
struct OwnedData {
  std::vector<std::byte> block;
  DataPair pair;
};
OwnedData open_data(const DataRequest& request);

}  // namespace tutti
