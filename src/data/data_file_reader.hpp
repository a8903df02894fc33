#pragma once
// Data files (tutti/data/data_file.hpp) as a source of data sets.

#include "data_block.hpp"

#include <string>

namespace tutti {

// Both sets of the file: their pixels, compared with their digests, or where they are when there are more than
// request.most_resident_bytes of them (0: never); then they are compared with their digests now only as the request's
// verification asks for. The structure of the file is compared with its seal in any case.
LoadedPair read_data_file(const std::string& path, const DataRequest& request);

}  // namespace tutti
