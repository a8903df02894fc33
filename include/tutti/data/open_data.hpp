#pragma once
// Opens the data sets that --data names. One process per host loads them into a block of bytes without pointers, which
// can be in memory shared by all ranks of the host. Each rank opens its own data sets over that block.

#include "tutti/backend/growing_memory.hpp"
#include "tutti/data/dataset.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// How much of the data is verified before it is used.
//   none     no image file is opened: their size is not known
//   start    as many image headers as determine the shape; a sample of the files for the digest of their contents
//   sample   all image headers, and a sample of the images is decoded
//   whole    all images are decoded
// It concerns image files; DataFileCheck says which data files are compared with their digest.
enum class Verification { none, start, sample, whole };
// Which data files that are not read into memory are compared with their digest first. Files of early versions have no
// checksums and cannot be verified while they are read.
enum class DataFileCheck { none, without_checksums, all };

// How samples are held out: the same share of every class, or a share of all samples at once, as versions without this
// choice did.
enum class Split { stratified, random };
constexpr std::array<std::string_view, 2> enum_names(Split) { return {"stratified", "random"}; }

struct DataRequest {
  // "glyphs", "synthetic:NxCxHxW:classes", a folder (idx files, CIFAR batches, class folders of images, or a
  // flat folder of images with a label CSV), a list of image files and labels (.txt, .csv, .tsv or .lst), an HDF5 file,
  // or a bare NAME looked up as ./NAME, ./data/NAME and $TUTTI_DATA/NAME.
  std::string train{};
  std::string test{};           // likewise for a separate test set; else empty
  int class_depth = 1;          // levels of folders that name a class: 2 for animals/dog/1.jpg
  double validation_ratio = 0;  // if > 0, this fraction of the training set is held out as the test set
  Split split = Split::stratified;
  // Images of one group are held out together, if given: a CSV table of image files and groups, FILE or FILE:COLUMN.
  std::string validation_groups{};
  std::uint64_t seed = 0;  // decides which samples are held out
  bool skip_bad_images = false;
  Verification verification = Verification::start;
  DataFileCheck data_file_check = DataFileCheck::none;
  bool applies_exif = true;             // apply the EXIF orientation of JPEG and TIFF files
  std::size_t most_resident_bytes = 0;  // a larger HDF5 data set is read lazily; 0: a quarter of the host's memory
  bool allow_unlabelled = false;        // accept a folder of image files without a label table, unlabelled
  bool allow_untrained_labels = false;  // the test set may have classes without training samples
  bool allow_non_utf8_names = false;    // for resuming runs that were trained on such class names
  bool from_checkpoint = false;         // the name of the data comes from a checkpoint
  bool lists_problems = false;          // do not stop at image files that cannot be read and classes without images
  // Image files and folders of image files; if given, they are opened instead of `train`.
  std::vector<std::string> images{};
};

struct DataPair {
  std::unique_ptr<Dataset> train;
  std::unique_ptr<Dataset> test;             // null if there is no test set
  std::vector<std::string> notes;            // for the user, for example skipped images
  std::vector<std::string> empty_classes{};  // with lists_problems, lines about class folders without images
};

// Fills the empty memory with a block: the pixels of small data sets, read straight into it, and the files and rows of
// large ones. Throws input or io errors that name the file, the position in it and the reason.
void load_data(const DataRequest& request, GrowingMemory& memory);
// `block` is borrowed by the data sets and must be aligned to 8 bytes. Throws as load_data does.
DataPair open_loaded(const Buffer& block);

// Whether the training set that is left after holding out samples of `whole`, as the request says, has this digest.
bool matches_after_hold_out(std::uint64_t digest, const Dataset& whole, const DataRequest& request);

// load_data and open_loaded for a single process; owns the block.
struct OwnedData {
  Buffer block;
  DataPair pair;
};
OwnedData open_data(const DataRequest& request);

}  // namespace tutti
