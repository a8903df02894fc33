#pragma once
// How the threads of a grid share out an activation when each keeps to one pack of channels and goes from pixel to
// pixel ("rows"), its neighbours beside it in memory: for what has sums or numbers for each channel.

#include "backend/cuda/format.hpp"

#include <cstdint>

namespace tutti::cuda {

struct RowGrid {
  static constexpr int kThreads = 256;  // of a block

  std::int64_t rows = 0;
  std::int64_t chunk_rows = 0;  // of a block; the last chunk may have fewer
  int packs = 0;                // from one row to the next
  int width = 0;                // packs of a row that a block has, the last of a row perhaps fewer
  int height = 0;               // rows that a block has at a time; threads beyond width * height have none
  int columns = 0;              // blocks beside each other
  int chunks = 0;
};

// For what leaves nothing behind for each block: several times as many as a GPU runs at once, so that multiprocessors
// which are done early find more.
inline constexpr std::int64_t kPassBlocks = 24 * 132;

// Into no more than about so many blocks.
RowGrid share_rows(const ImageLayout& layout, ElementType type, std::int64_t most_blocks);

}  // namespace tutti::cuda
