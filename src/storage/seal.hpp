#pragma once
// The seal of row_file.hpp: which bytes it covers, and how it lies at the end of a file.

#include "tutti/storage/array_file.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti {

// The seal for a file as it is, with rows in these runs, which need not be in order. Throws an io error when the file
// cannot be read.
std::vector<std::byte> seal_for(const std::string& path, std::vector<ByteRun> runs);

}  // namespace tutti
