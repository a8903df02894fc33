#pragma once
// The binary formats of published data sets. Files may be gzip-compressed. What a header says is compared with the size
// of its file before memory is taken for it.
//
// The idx format of the MNIST family: big-endian 32-bit words, then bytes.
//   images  magic 0x00000803, N, H, W, then N*H*W pixels; or magic 0x00000804, N, C, H, W, then N*C*H*W
//           pixels
//   labels  magic 0x00000801, N, then N labels
//
// CIFAR-10's binary batches: records of one label byte (0 .. 9) and 3x32x32 pixels, without a header.
// batches.meta.txt beside them, where there is one, holds the ten class names, one a line.

#include "loaded_set.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct IdxFiles {
  std::filesystem::path images;
  std::filesystem::path labels;
};

// The files of one set ("train", "t10k") in a folder, under any of their usual names. Throws an io error when
// one of the two is there without the other.
std::optional<IdxFiles> find_idx_files(const std::filesystem::path& folder, std::string_view set);

LabelledImages read_idx(const IdxFiles& files);

inline constexpr int kCifarClasses = 10;

// The files "<prefix>*.bin" and "<prefix>*.bin.gz" of a folder in the order of their numbers, each batch
// once.
std::vector<std::filesystem::path> find_cifar_files(const std::filesystem::path& folder, std::string_view prefix);

LabelledImages read_cifar(const std::vector<std::filesystem::path>& files);

// Empty where the folder names no classes.
std::vector<std::string> read_cifar_class_names(const std::filesystem::path& folder);

}  // namespace tutti
