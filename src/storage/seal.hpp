#pragma once
// Computes the seal of array_file.hpp.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti {

struct ByteRange {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

// The seal for a file with its current contents. It does not cover the given ranges, which may be in any order. Throws
// an io error if the file cannot be read.
std::vector<std::byte> seal_for(const std::string& path, std::vector<ByteRange> uncovered);
std::vector<std::byte> seal_for(std::span<const std::byte> contents, std::vector<ByteRange> uncovered);

}  // namespace tutti
