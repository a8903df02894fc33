#pragma once
// The seal of an HDF5 file: a trailing checksum. It follows HDF5's own bytes, and other programs ignore it. All its
// numbers are 64-bit little-endian:
//   offset and length of each byte range that the seal does not cover, ascending
//   number of ranges, length of the file before the seal, digest, the letters "tuttisea"
// The digest is digest("file", the covered bytes before the seal) + digest("runs", offsets and lengths).
// A valid seal guarantees that the file is complete and that HDF5's metadata, small arrays and strings are unchanged.
// Rows and f32 arrays are not covered, so that a large file opens quickly.
// The seal detects damage, not forgery: its digest has 64 bits and is not cryptographic.

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

// Throws an input error that names the file and the fault unless its seal is valid, or an io error.
void check_seal(const std::string& path);
// The same for the contents of a file, which is also valid if it ends with HDF5's bytes: early versions added no seal.
void check_seal_if_present(std::span<const std::byte> contents, const std::string& path);

}  // namespace tutti
