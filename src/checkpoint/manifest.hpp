#pragma once
// The small JSON file beside a checkpoint: what the checkpoint must look like to count. Field by field in
// tutti/checkpoint/checkpoint_store.hpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct ManifestFile {
  std::string file;  // name without folder
  std::int64_t bytes = 0;
  std::string sha256;  // 64 hexadecimal digits
  friend bool operator==(const ManifestFile&, const ManifestFile&) = default;
};

struct Manifest {
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  std::uint64_t weights = 0;  // digest
  std::uint64_t data_digest = 0;
  std::string versions;
  std::vector<ManifestFile> files;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::string manifest_text(const Manifest& manifest);
// Throws a checkpoint error that says what is wrong, but not where: the caller knows the file. A manifest of another
// format is refused by an input error, since it is not damaged.
Manifest parse_manifest(std::span<const std::byte> text);

}  // namespace tutti
