#pragma once
// The files of a data set out of the tar archive in which it is published. Only those that are asked for are written,
// under the last part of their name; what else the archive holds never becomes a path.

#include <cstdint>
#include <string>
#include <vector>

namespace tutti {

struct PackedFile {
  std::string path;             // in the archive
  std::int64_t most_bytes = 0;  // a longer one is refused
};

// Each file appears in `folder`, which is there, whole or not at all; one of its name is replaced. Throws input errors
// that name archive, place and reason: damage, links, paths that lead out, a file that is missing or there twice; and
// io and save errors.
void unpack(const std::string& archive, const std::vector<PackedFile>& files, const std::string& folder);

}  // namespace tutti
