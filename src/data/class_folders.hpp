#pragma once
// Folders of class folders: every sub-folder is a class of its name and holds that class's images. Classes and files
// count in the order of their names. Sets may lie apart in train/ and in test/, valid/ or val/.

#include "loaded_set.hpp"

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tutti {

// The set's images in class folders, or nothing where no sub-folder holds an image. What is left out is told in
// `notes`. Throws an input error for a class without images.
std::optional<LoadedSet> list_class_folders(const std::filesystem::path& folder, std::vector<std::string>& notes);

// The sub-folder of that set, or nothing: "train" for the training set, and for the test set the first of "test",
// "valid" and "val" that holds class folders.
std::optional<std::filesystem::path> find_set_folder(const std::filesystem::path& folder, bool is_test);

}  // namespace tutti
