#pragma once
// The small JSON file beside a checkpoint: what the checkpoint must look like to count. Field by field in
// tutti/checkpoint/checkpoint_store.hpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

struct Manifest {
  std::string file;  // name without folder
  std::int64_t bytes = 0;
  std::uint64_t digest = 0;
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  friend bool operator==(const Manifest&, const Manifest&) = default;
};

std::uint64_t image_digest(std::span<const std::byte> image);

std::string manifest_text(const Manifest& manifest);
// Throws a checkpoint error that says what is wrong, but not where: the caller knows the file.
Manifest parse_manifest(std::span<const std::byte> text);

}  // namespace tutti
