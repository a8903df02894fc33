#pragma once
// What is said of a folder or file that is no data set: what lies there, and what would make it one.

#include <filesystem>
#include <string>

namespace tutti {

// Of a folder in which no reader has found a set. Throws an input error that names it.
[[noreturn]] void refuse_folder(const std::filesystem::path& folder);

// Throws an input error for a file that does not even begin as an HDF5 file does; passes over what cannot be read.
void refuse_foreign_file(const std::string& path);

}  // namespace tutti
