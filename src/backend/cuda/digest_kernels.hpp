#pragma once
// The kernel of digest.cpp. Pointers are to a GPU's memory.

#include <cuda_runtime_api.h>

#include <cstdint>

namespace tutti::cuda {

inline constexpr std::int64_t kDigestBlock = 16384;  // elements that one block of the kernel digests

// As many tensors as fit the arguments of a kernel.
struct DigestTable {
  static constexpr int kMost = 64;

  struct Entry {
    const void* values;
    std::int64_t elements;
    std::uint64_t start;
    std::int64_t first_block;  // of all blocks of the table
    bool is_wide;              // elements of 64 bits, not of 32
    bool is_aligned;           // to 16 bytes
  };
  int tensors = 0;
  std::int64_t blocks = 0;
  Entry entries[kMost];
};

// Adds to digests[i] that of entry i. Asynchronous.
void launch_digests(cudaStream_t stream, const DigestTable& table, std::int64_t* digests);

}  // namespace tutti::cuda
