#pragma once
// CIFAR-10's binary batches: records of one label byte (0 .. 9) and 3x32x32 pixels, without a header. Files
// may be gzip-compressed. batches.meta.txt beside them, where there is one, holds the ten class names, one
// per line.

#include "labelled_images.hpp"

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

inline constexpr int kCifarClasses = 10;

// The files "<prefix>*.bin" and "<prefix>*.bin.gz" of a folder in the order of their numbers, each batch
// once.
std::vector<std::filesystem::path> find_cifar_files(const std::filesystem::path& folder, std::string_view prefix);

LabelledImages read_cifar(const std::vector<std::filesystem::path>& files);

// Empty where the folder names no classes.
std::vector<std::string> read_cifar_class_names(const std::filesystem::path& folder);

}  // namespace tutti
