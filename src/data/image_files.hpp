#pragma once
// JPEG and PNG files in folders: which there are, what they show, and which of them are bad.

#include "tutti/base/shape.hpp"
#include "tutti/data/dataset.hpp"
#include "tutti/data/open_data.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct ImageFiles {
  std::filesystem::path folder;
  std::vector<std::string> names;   // relative to the folder
  std::vector<std::int64_t> bytes;  // how long each file is
  bool upright = true;              // turned as their EXIF orientation says
};

// What a folder holds itself, sorted; hidden entries and what lies deeper count for nothing.
struct FolderListing {
  ImageFiles images;  // .jpg, .jpeg and .png in any case
  std::vector<std::string> folders;
  std::vector<std::string> others;
};
FolderListing list_folder(const std::filesystem::path& folder);

struct ImageFindings {
  Shape image;                        // C, H, W for all of them; H and W are 0 where they differ
  std::vector<std::size_t> bad;       // indices of the files that cannot be decoded, ascending
  std::vector<std::string> problems;  // of each of these
};

// Looks at the headers, of as many files as it takes or as asked for, and throws an input error for files that cannot
// be read; or with `find_bad` decodes every file. Uses all cores.
ImageFindings examine(const ImageFiles& files, Verification verification, bool find_bad);

// Of a sample of the files, whose choice depends on their number alone; when `whole`, of all of them, too. Uses all
// cores.
FileContents contents_of(const ImageFiles& files, bool whole);

// Decodes one file as decode_image does. Throws io and input errors that name it and the remedy.
Shape read_image(const std::string& path, std::int64_t channels, bool upright, std::vector<std::uint8_t>& pixels);

// Stands for the files of a set and their labels: digest("files"), over each one's hash of name and length, +
// digest("labels").
std::uint64_t digest_of(const ImageFiles& files, std::span<const std::int32_t> labels);

}  // namespace tutti
