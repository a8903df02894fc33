#pragma once
// A file that appears whole or not at all: written under a temporary name in the same folder, flushed to the
// disk, renamed, and the folder flushed. Until the rename the old file, if any, is untouched.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti {

// Throws a save error with path, errno text and remedy; the temporary file is removed then.
void write_whole(const std::string& path, std::span<const std::byte> bytes);

// All bytes of a file. Throws an io error with path and errno text.
std::vector<std::byte> read_whole(const std::string& path);

}  // namespace tutti
