#pragma once
// Data files (tutti/data/data_file.hpp) as a source of data sets.

#include "data_block.hpp"

#include <cstddef>
#include <string>

namespace tutti {

// Both sets of the file: their pixels, held against their digests, or where they are when there are more than so many
// bytes of them (0: never). The structure of the file is held against its seal in any case.
LoadedPair read_data_file(const std::string& path, std::size_t most_resident_bytes);

}  // namespace tutti
