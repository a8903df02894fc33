#pragma once
// The idx format of the MNIST family: big-endian 32-bit words, then bytes.
//   images  magic 0x00000803, N, H, W, then N*H*W pixels; or magic 0x00000804, N, C, H, W, then N*C*H*W
//   pixels labels  magic 0x00000801, N, then N labels
// Files may be gzip-compressed. Every promise of a header is held against the file before memory is taken for
// it.

#include "labelled_images.hpp"

#include <filesystem>
#include <optional>
#include <string_view>

namespace tutti {

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

// The files of one set ("train", "t10k") in a folder, under any of their usual names. Throws an io error when
// one of the two is there without the other.
std::optional<IdxFiles> find_idx_files(const std::filesystem::path& folder, std::string_view set);

LabelledImages read_idx(const IdxFiles& files);

}  // namespace tutti
