#pragma once
// The seal of array_file.hpp: which bytes it covers, and how it lies at the end of a file.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct ByteRun {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// The seal for a file as it is, which does not cover these runs; they need not be in order. Throws an io error when the
// file cannot be read.
std::vector<std::byte> seal_for(const std::string& path, std::vector<ByteRun> runs);
std::vector<std::byte> seal_for(std::span<const std::byte> image, std::vector<ByteRun> runs);

}  // namespace tutti
